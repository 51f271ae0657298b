"""Packages that are functions too: `podsrl.compare` holds modules, and `podsrl.compare(...)` runs a comparison."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from podsrl.lib.resolve import load


class CallablePackage(ModuleType):
    """A package that is called as the function of its name in `podsrl.api`.

    An import of one of its modules makes Python bind the package's name in `podsrl`, where the function's was.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return load(f"podsrl.api:{self.__name__.rpartition('.')[2]}")(*arguments, **options)
