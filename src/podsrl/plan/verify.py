"""Compare predictions with measurements: take real steps at several choices, in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from podsrl.lib.progress import Progress
from podsrl.plan.cost import PREDICTED_STAGES
from podsrl.plan.probe import resize
from podsrl.plan.search import Candidate
from podsrl.run.loop import training_step
from podsrl.run.step_result import StepResult
from podsrl.run.trainer import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Predicted and measured seconds of a step."""

    predicted: float
    measured: float
    """Median over the steps."""
    low: float
    """First quartile."""
    high: float
    """Third quartile."""
    num_steps: int
    stages: dict[str, tuple[float, float]]
    """Stage -> predicted and median measured seconds."""

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured


def verify(
    trainer: Trainer, candidates: Sequence[Candidate], *, num_steps: int, progress: Progress
) -> list[Verification]:
    """Take real steps with a trainer that learns nothing (`probe.still_trainer`).

    The choices take turns, so that a slow moment of the machine falls on all of them alike. The first step after a
    change of the micro-batch size does not count: it allocates the optimizer's memory.

    Args:
        trainer: changed by this; do not use it afterwards.
        candidates: choices to run.
        num_steps: per choice.
        progress: out of 1.
    """
    steps: list[list[StepResult]] = [[] for _ in candidates]
    for done in range(num_steps):
        for candidate, own in zip(candidates, steps, strict=True):
            n, m, micro = candidate.key
            progress(done / num_steps, 1.0, f"{n} → {m} for real")
            is_new = done == 0 or micro != trainer.config.optim.micro_batch_tokens
            resize(trainer, num_rollouts=n, num_kept=m, micro_batch_tokens=micro)
            if is_new:
                training_step(trainer)
            own.append(training_step(trainer))
    return [_compare(candidate, own) for candidate, own in zip(candidates, steps, strict=True)]


def _compare(candidate: Candidate, steps: Sequence[StepResult]) -> Verification:
    totals = np.array([step.total_seconds for step in steps])
    return Verification(
        predicted=candidate.seconds.total,
        measured=float(np.median(totals)),
        low=float(np.quantile(totals, 0.25)),
        high=float(np.quantile(totals, 0.75)),
        num_steps=len(steps),
        stages={
            name: (getattr(candidate.seconds, name), float(np.median([step.seconds[name] for step in steps])))
            for name in PREDICTED_STAGES
        },
    )
