"""The counters of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands; a checkpoint's state.json holds it."""

    step: int = 0
    """Steps done."""
    version: int = 0
    """Optimizer steps that have changed the weights."""
    data_position: int = 0
    """Tasks drawn from the data stream so far."""
    train_seconds: float = 0.0
    """Seconds of all steps; evaluation and checkpoints are not in it."""
