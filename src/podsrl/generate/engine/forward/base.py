"""What the engine needs of a model: reading prompts, and one decode step for all rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from podsrl.generate.engine.forward.prefill import Read, read_layout, read_prompts
from podsrl.generate.engine.forward.zones import Zone
from podsrl.generate.engine.kv_pool import KVPool, Layout


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Of R rows."""

    logits: Tensor
    """[R, V] after the newest token."""
    hidden: Tensor | None
    """[R, D], the head's input; None if it was not asked for."""


@dataclass(frozen=True, slots=True)
class Step:
    """One token per row: rows 0 .. R-1 of a pool with at least R rows and capacity `length`."""

    tokens: Tensor
    """[R] int64, the newest token of each row."""
    positions: Tensor
    """[R] int64, where it stands in its row; its keys and values are written there. Those before it are in the pool."""
    length: int
    """The largest position + 1."""
    is_even: bool = False
    """All positions are `length` - 1, which saves the mask."""
    zones: Sequence[Zone] = ()
    """Of these rows (`Zones.at`), with lengths that count the newest token; none: one for all. It changes no result,
    only what is read."""
    want_hidden: bool = False
    """Also return the head's input."""


class Forward(ABC):
    """A model as the engine sees it."""

    name: str
    """Which step runs: "graph", "fast" or "model"."""
    layout: Layout
    """What one token takes in the pool."""

    def __init__(self, model: Any) -> None:
        self._model, self.layout = model, read_layout(model)

    @abstractmethod
    def refresh(self) -> None:
        """Use new weights: call it before the first step after they may have changed.

        Raises:
            UsageError: the model was changed, and the step does not cover it any more.
        """

    def read(self, prompts: Sequence[Sequence[int]], pool: KVPool, rows: Sequence[int]) -> Read:
        """Read P prompts (or prompts and the tokens made so far) into rows of the pool, which has room for them."""
        return read_prompts(self._model, prompts, pool, rows)

    @abstractmethod
    def __call__(self, step: Step, pool: KVPool) -> StepOutput:
        """Run a step."""
