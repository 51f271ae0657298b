"""What the engine needs of a model: reading prompts, and one decode step for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from podsrl.generate.engine.forward.prefill import Read
from podsrl.generate.engine.forward.zones import Zone
from podsrl.generate.engine.kv_pool import KVPool, Layout


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Of R rows."""

    logits: Tensor
    """[R, V] after the newest token."""
    hidden: Tensor | None
    """[R, D], the head's input; None if it was not asked for."""


class Forward(Protocol):
    """A model as the engine sees it."""

    name: str
    """Which step runs: "graph", "fast" or "model"."""
    layout: Layout
    """What one token takes in the pool."""

    def refresh(self) -> None:
        """Use new weights: call it before the first step after they may have changed.

        Raises:
            UsageError: the model was changed, and the step does not cover it any more.
        """

    def read(self, prompts: Sequence[Sequence[int]], pool: KVPool, rows: Sequence[int]) -> Read:
        """Read P prompts (or prompts and the tokens made so far) into rows of the pool, which has room for them."""

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        pool: KVPool,
        length: int,
        *,
        is_even: bool = False,
        zones: Sequence[Zone] = (),
        want_hidden: bool = False,
    ) -> StepOutput:
        """Run one token per row: rows 0 .. R-1 of the pool.

        Args:
            tokens: [R] int64, the newest token of each row.
            positions: [R] int64, where it stands in its row; its keys and values are written there.
            pool: has at least R rows and capacity `length`; row r holds positions 0 .. positions[r] - 1.
            length: the largest position + 1.
            is_even: all positions are `length` - 1, which saves the mask.
            zones: of these rows (`Zones.at`), with lengths that count the newest token; none: one for all. It changes
                no result, only what is read.
            want_hidden: also return the head's input.
        """
