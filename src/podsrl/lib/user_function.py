"""Import a user's own functions, named "module:function", and describe their failures."""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

from podsrl.errors import PodsError, UsageError, cut, nearest

FAILURES = (Exception, SystemExit)
"""What a user's code may raise; a call of sys.exit must not end the run as if it had succeeded."""

_OURS = Path(__file__).parents[1]
_PYTHONS = Path(sysconfig.get_path("stdlib"))
NUM_PLACES = 3
"""Lines of the user's that are shown with their code."""
_INSTALLED = {"site-packages", "dist-packages"}
GIVEN: dict[str, Callable[..., Any]] = {}
"""Functions that were given as objects, and that Python does not find by their names, such as one that another function
made. Only this process has them."""
HERE = " (here)"
"""Ends their names, so that no other function is taken for one of them."""
_DEFINED_THERE = (
    "is a function that a notebook or script defined; define it there again, and go on from there: "
    "podsrl.Run(FOLDER).resume(). A function in a file of its own is found everywhere"
)
_importing: ContextVar[str] = ContextVar("importing", default="")
"""The user's module that is being imported, in this process or a worker's."""


def import_function(name: str, *, where: str, wanted: str = "a function", may_wait: bool = False) -> Callable[..., Any]:
    """Import "module:function", or "module:object.function"; Python must find the module.

    A function that was given as an object (`given_name`) is that object.

    UsageError, which begins with `where`: the module cannot be imported, whatever it raises, or has no such function;
    `wanted` says what the function should be. So is an `async` function, unless it `may_wait`.

    Example:
        >>> import_function("math:sqrt", where="an option = 'math:sqrt'")(9)
        3.0
    """
    function = GIVEN[name] if name in GIVEN else _imported(name, where)
    if not callable(function):
        raise UsageError(f"{where} has the type {type(function).__name__}; wanted {wanted}")
    if is_asynchronous(function) and not may_wait:
        raise UsageError(f"{where} is asynchronous (async def), which is not supported; wanted {wanted}")
    return function


def _imported(name: str, where: str) -> Any:
    if name.endswith(HERE):
        raise UsageError(f"{where} {_DEFINED_THERE}")
    module_name, _, attribute = name.partition(":")
    _look_beside_the_user()
    mark = _importing.set(module_name)
    try:
        module = importlib.import_module(module_name)
    except FAILURES as error:
        cure = "; a module's name has no '.py' and no '/'" if module_name.endswith(".py") or "/" in module_name else ""
        raise UsageError(
            f"{where} cannot be imported: {reason_of(error)}; wanted 'module:function' of a module that Python finds "
            f"(in the folder in which pods is called, on PYTHONPATH, or installed){cure}"
        ) from error
    finally:
        _importing.reset(mark)
    try:
        return attrgetter(attribute)(module)
    except AttributeError as error:
        if module_name == "__main__":
            raise UsageError(f"{where} {_DEFINED_THERE}") from error
        public = [known for known in dir(module) if not known.startswith("_")]
        hint = nearest(attribute, public) if public else ""
        raise UsageError(f"{where} cannot be imported: no {attribute!r} in {module_name!r}.{hint}") from error
    except FAILURES as error:  # a module may load its parts lazily
        raise UsageError(f"{where} cannot be imported: {reason_of(error)}") from error


def given_name(function: Callable[..., Any]) -> str:
    """Name a function as options do, "module:function", so that `import_function` finds it in this process.

    Where Python finds another one by that name, or none, the function itself is kept (`GIVEN`), and the name ends with
    `HERE`; a later one of the same name takes its place.

    Example:
        >>> import math
        >>> given_name(math.sqrt)
        'math:sqrt'
    """
    module = getattr(function, "__module__", None) or "__main__"
    attribute = getattr(function, "__qualname__", type(function).__qualname__)
    name = f"{module}:{attribute}"
    try:
        is_found = attrgetter(attribute)(sys.modules[module]) is function
    except (KeyError, AttributeError):
        is_found = False
    if is_found:
        return name
    GIVEN[name + HERE] = function
    return name + HERE


def check_is_no_import(what: str) -> None:
    """UsageError: a user's module does `what` while it is imported for a function of its own, so it would never end."""
    if module := _importing.get():
        raise UsageError(f'{what} when {module!r} is imported; put what runs below `if __name__ == "__main__":`')


def _look_beside_the_user() -> None:
    """Let Python find modules in the current folder; it comes last, so that they shadow nothing.

    This happens only when a user's own function is asked for: libraries try to import many optional packages, and would
    run files of those names in any current folder.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine, which nobody awaits."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def check_arguments(function: Callable[..., Any], num_arguments: int, *, where: str, wanted: str) -> None:
    """Check that a function can be called with so many arguments by position.

    Raises:
        UsageError: it cannot, or it is `async`. A function whose parameters Python does not know passes.
    """
    if is_asynchronous(function):
        raise UsageError(f"{where} is asynchronous (async def), which is not supported; wanted {wanted}")
    if why := why_not(function, num_arguments):
        raise UsageError(f"{where} takes {why}; wanted {wanted}")


def why_not(function: Callable[..., Any], num_arguments: int) -> str:
    """What a function takes, where it is not so many arguments by position; empty too where Python does not know.

    Example:
        >>> why_not(lambda task: None, 2)
        '(task) (too many positional arguments)'
    """
    try:
        signature = inspect.signature(function)
    except Exception:  # some functions written in C; an object may raise anything
        return ""
    try:
        signature.bind(*[None] * num_arguments)
    except TypeError as error:
        return f"{signature} ({error})"
    return ""


@contextmanager
def calling(what: str, wanted: str = "") -> Iterator[None]:
    """Surround a call of a user's function, and the reading of what it gives: a failure becomes one line.

    Args:
        what: the beginning of the message: whose call it is.
        wanted: how it is called, for a function that cannot be called so.

    Raises:
        UsageError: the code raised; errors of this package (`PodsError`) stay as they are.
    """
    try:
        yield
    except PodsError:
        raise
    except FAILURES as error:
        cure = f"; wanted {wanted}" if wanted and not _places_of(error.__traceback__) else ""
        raise UsageError(f"{what} raised {reason_of(error)}{cure}") from error


def name_of(function: object) -> str:
    """What messages call a function."""
    return getattr(function, "__name__", type(function).__name__)


def reason_of(error: BaseException, *, with_code: bool = False) -> str:
    """An exception in one line: its type, its text, and the place in the user's file, where there is one.

    `with_code`: the last `NUM_PLACES` lines of the user's that it went through, with what stands there.

    Example:
        >>> reason_of(ValueError("too\\nlarge"))
        'ValueError: too large'
    """
    try:
        said = f": {error}"
    except FAILURES:  # an exception of the user's own may have no text
        said = ": its message cannot be read"
    text = " ".join(f"{type(error).__name__}{said}".split())
    places = [] if isinstance(error, SyntaxError) else _places_of(error.__traceback__)  # its text says where
    shown = [f"{file.name}, line {line}{_code_of(file, line) if with_code else ''}" for file, line in places]
    return f"{text} ({'; '.join(shown[-NUM_PLACES if with_code else -1 :])})" if places else text


def _code_of(file: Path, line: int) -> str:
    code = linecache.getline(str(file), line).strip()
    return f": {cut(code, 100)}" if code else ""


def _places_of(trace: TracebackType | None) -> list[tuple[Path, int]]:
    """The lines of the user's own files, else the innermost of an installed package; none of Python's or our own."""
    frames = ((Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(trace))
    places = [place for place, _ in groupby(frames)]  # what builds a list has a frame of its own
    packages = [place for place in places if _INSTALLED & set(place[0].parts) and _OURS not in place[0].parents]
    own = [place for place in places if place not in packages and not _is_ours_or_pythons(place[0])]
    return own or packages[-1:]


def _is_ours_or_pythons(file: Path) -> bool:
    return file.name.startswith("<frozen") or _OURS in file.parents or _PYTHONS in file.parents
