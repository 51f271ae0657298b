"""What a decode step returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Of R rows."""

    logits: Tensor
    """[R, V] after the newest token."""
    hidden: Tensor | None
    """[R, D], the head's input; None if it was not asked for."""
