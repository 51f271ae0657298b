"""One resolver for every option that holds a known name or a function of the user's own, and the tables of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar, cast

from podsrl.errors import UsageError, nearest
from podsrl.lib.user_function import import_function

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Table(Mapping[str, T_co]):
    """The known names of an option. Each stands for "module:object" of this package, which is imported on use.

    So a table costs no import, and names what stands on a higher floor than the table.

    Example:
        >>> roots = Table({"square": "math:sqrt"})
        >>> list(roots), roots["square"](9)
        (['square'], 3.0)
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = dict(places)
        """Name -> "module:object"."""

    def __getitem__(self, name: str) -> T_co:
        return cast(T_co, load(self.places[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name: object) -> bool:
        return name in self.places


def load(place: str) -> Any:
    """Import "module:object" of this package.

    Example:
        >>> load("math:tau") > 6
        True
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def resolve(name: str, table: Mapping[str, T], *, option: str, kind: str, wanted: str, may_wait: bool = False) -> T:
    """The entry of `table` under `name`, or the function that "module:function" names.

    Messages name the `option`, what an entry is (`kind`), and what a user's function has to be (`wanted`). UsageError:
    no such name, module or function; the module fails on import; what it names cannot be called, or is `async` and
    not `may_wait`.

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
    return cast(T, import_function(name, where=f"{option} = {name!r}", wanted=wanted, may_wait=may_wait))
