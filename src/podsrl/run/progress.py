"""Where a run stands, and what an update says that did nothing."""

from __future__ import annotations

from dataclasses import dataclass

from podsrl.update import UpdateStats

NO_UPDATE = UpdateStats(
    loss=0.0,
    entropy=0.0,
    kl=None,
    clip_fraction=0.0,
    logprob_gap=0.0,
    ratio_max=0.0,
    num_sequences=0,
    num_tokens=0,
    num_trained_rows=0,
    num_trained_tokens=0,
    num_micro_batches=0,
)
"""Of a step in which no group had two valid rollouts."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands; the part of a checkpoint that is not a tensor."""

    step: int = 0
    """Steps done."""
    version: int = 0
    """Optimizer steps that have changed the weights."""
    data_position: int = 0
    """Tasks drawn from the data stream so far."""
    train_seconds: float = 0.0
    """Seconds of all steps; evaluation and checkpoints are not in it."""
