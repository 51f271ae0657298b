"""Arrays with names that parts keep with a rollout. NumPy is imported with the first of them, and no earlier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class Notes(Mapping[str, "NDArray[np.float32]"]):
    """Arrays with names, float32 and of any shapes; equal ones have equal names, shapes and numbers.

    Example:
        >>> Notes({"hint": [0.5]}).having("hidden", [[1, 2, 3], [4, 5, 6]])
        Notes(hint [1], hidden [2, 3])
    """

    __slots__ = ("_arrays",)

    def __init__(self, arrays: Mapping[str, ArrayLike] = MappingProxyType({})) -> None:
        self._arrays: dict[str, NDArray[np.float32]] = {}
        if arrays:
            import numpy as np

            self._arrays = {name: np.array(values, dtype=np.float32) for name, values in arrays.items()}

    def having(self, name: str, values: ArrayLike) -> Notes:
        """The same with one more, or in place of the one with that name."""
        found = Notes({name: values})
        found._arrays = {**self._arrays, **found._arrays}
        return found

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Notes) or self.keys() != other.keys():
            return False
        return all(one.shape == other[name].shape and bool((one == other[name]).all()) for name, one in self.items())

    def __hash__(self) -> int:
        return hash(frozenset(self._arrays))

    def __repr__(self) -> str:
        return f"Notes({', '.join(f'{name} {list(values.shape)}' for name, values in self.items())})"


NO_NOTES = Notes()
