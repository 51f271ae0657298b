"""Import a user's own functions, named "module:function", and describe their failures."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

from podsrl.errors import UsageError, nearest

FAILURES = (Exception, SystemExit)
"""What a user's code may raise; a call of sys.exit must not end the run as if it had succeeded."""


def import_function(name: str, *, where: str, wanted: str = "a function") -> Callable[..., Any]:
    """Import "module:function", or "module:object.function"; Python must find the module.

    UsageError, which begins with `where`: the module cannot be imported, whatever it raises, or has no such function;
    `wanted` says what the function should be.

    Example:
        >>> import_function("math:sqrt", where="an option = 'math:sqrt'")(9)
        3.0
    """
    module_name, _, attribute = name.partition(":")
    _look_beside_the_user()
    try:
        module = importlib.import_module(module_name)
    except FAILURES as error:
        cure = "; a module's name has no '.py' and no '/'" if module_name.endswith(".py") or "/" in module_name else ""
        raise UsageError(
            f"{where} cannot be imported: {reason_of(error)}; wanted 'module:function' of a module that Python finds "
            f"(in the folder in which pods is called, on PYTHONPATH, or installed){cure}"
        ) from error
    try:
        function = attrgetter(attribute)(module)
    except AttributeError as error:
        public = [known for known in dir(module) if not known.startswith("_")]
        hint = nearest(attribute, public) if public else ""
        raise UsageError(f"{where} cannot be imported: no {attribute!r} in {module_name!r}.{hint}") from error
    except FAILURES as error:  # a module may load its parts lazily
        raise UsageError(f"{where} cannot be imported: {reason_of(error)}") from error
    if not callable(function):
        raise UsageError(f"{where} has the type {type(function).__name__}; wanted {wanted}")
    return function  # type: ignore[no-any-return]  # `callable` says that it is one


def _look_beside_the_user() -> None:
    """Let Python find modules in the current folder; it comes last, so that they shadow nothing.

    This happens only when a user's own function is asked for: libraries try to import many optional packages, and would
    run files of those names in any current folder.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)


def reason_of(error: BaseException) -> str:
    """An exception in one line: its type, its text, and the line of the file that raised it.

    Example:
        >>> reason_of(ValueError("too\\nlarge"))
        'ValueError: too large'
    """
    text = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].filename.startswith("<frozen") or isinstance(error, SyntaxError):
        return text  # Python itself raised it, or the text says where
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def name_of(function: object) -> str:
    """What messages call a function."""
    return getattr(function, "__name__", type(function).__name__)


def call_by_name(function: Callable[..., object], kind: str, *arguments: object, **options: object) -> object:
    """Call a user's function. UsageError: it raised; one line names it, its `kind` and the reason."""
    try:
        return function(*arguments, **options)
    except UsageError:
        raise
    except FAILURES as error:
        raise UsageError(f"the {kind} {name_of(function)!r} raised {reason_of(error)}") from error
