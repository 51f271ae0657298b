"""One resolver for every option that holds a known name or a function of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from podsrl.errors import UsageError, nearest
from podsrl.lib.user_function import import_function

T = TypeVar("T")


def resolve(name: str, table: Mapping[str, T], *, option: str, kind: str, wanted: str) -> T:
    """The entry of `table` under `name`, or the function that "module:function" names.

    Messages name the `option`, what an entry is (`kind`), and what a user's function has to be (`wanted`). UsageError:
    no such name, module or function; the module fails on import; what it names cannot be called.

    Example:
        >>> resolve("sum", {"sum": sum}, option="my.option", kind="function", wanted="a function f(numbers)") is sum
        True
    """
    if name in table:
        return table[name]
    if ":" not in name:
        raise UsageError(
            f"{option} = {name!r} is no {kind}.{nearest(name, table)} A function of your own is 'module:function'."
        )
    return cast(T, import_function(name, where=f"{option} = {name!r}", wanted=wanted))
