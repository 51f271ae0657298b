"""The seam of this stage: a selection rule is a plain function from rewards to the indices worth an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray
from torch import Generator, Tensor

NestedFloats: TypeAlias = "Sequence[float] | Sequence[NestedFloats]"
NestedInts: TypeAlias = "list[int] | list[NestedInts]"


class SelectionRule(Protocol):
    """What a rule of your own must be; `select.rule = "module:function"` names it."""

    def __call__(self, rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
        """Choose `num_kept` rollouts of every group.

        Args:
            rewards: `[P, n]` float, finite; never written to.
            num_kept: the paper's m, 1 .. n.
            generator: source of every random draw; a rule that draws nothing leaves it alone.

        Returns:
            `[P, m]` int64 on the device of `rewards`: distinct indices 0 .. n-1, ascending within a group.
        """
        ...


class ArrayRule(Protocol):
    """A rule that also takes numpy arrays and nested lists `[..., n]` and answers with the same kind `[..., m]`."""

    @overload
    def __call__(self, rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor: ...
    @overload
    def __call__(
        self, rewards: NDArray[Any], num_kept: int, *, generator: Generator | None = None
    ) -> NDArray[np.int64]: ...
    @overload
    def __call__(self, rewards: Sequence[float], num_kept: int, *, generator: Generator | None = None) -> list[int]: ...
    @overload
    def __call__(
        self, rewards: Sequence[NestedFloats], num_kept: int, *, generator: Generator | None = None
    ) -> list[NestedInts]: ...
