"""One training run of podsrl, a step at a time, with the time that each step takes."""

from __future__ import annotations

from typing import Any

from benchmarks.timing import Clock, Taken
from podsrl.config.schema import RunConfig
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer


class OurArm:
    """podsrl's own trainer in this process. Its config decides everything, the seed and torch's threads included."""

    def __init__(self, config: RunConfig) -> None:
        self.trainer = Trainer(config)
        self.model = self.trainer.model
        self.metrics: dict[str, Any] = {}
        """Of the last step, named as in docs/metrics.md."""
        self.num_decode_steps = 0
        """Of the last step."""

    def step(self) -> Taken:
        """Generate, score, select and update once; returns what it took."""
        clock = Clock()
        result = training_step(self.trainer)
        self.metrics = step_metrics(result)  # TRL computes its metrics in its step, too
        self.num_decode_steps = result.load.num_decode_steps
        return clock.read()

    def close(self) -> None:
        """End what the trainer has started."""
        self.trainer.close()
