"""A prediction beside what was measured: real steps at one choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podsrl.run.plan.probe import Tick, resize, watched_step
from podsrl.run.plan.search import Candidate
from podsrl.run.trainer import Trainer

STAGES = ("generate", "score", "select", "update")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
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


def check(trainer: Trainer, candidate: Candidate, *, num_steps: int, tick: Tick) -> Check:
    """Take real steps with a trainer that learns nothing (`probe.still_trainer`), after one that does not count."""
    n, m, micro = candidate.key
    resize(trainer, num_rollouts=n, num_kept=m, micro_batch_tokens=micro)
    watched_step(trainer)
    lines = []
    for done in range(num_steps):
        tick(done / num_steps, f"{n} → {m} for real")
        lines.append(watched_step(trainer).metrics)
    totals = np.array([line["seconds/total"] for line in lines])
    return Check(
        predicted=candidate.seconds.total,
        measured=float(np.median(totals)),
        low=float(np.quantile(totals, 0.25)),
        high=float(np.quantile(totals, 0.75)),
        num_steps=num_steps,
        stages={
            name: (getattr(candidate.seconds, name), float(np.median([line[f"seconds/{name}"] for line in lines])))
            for name in STAGES
        },
    )
