"""How long a step takes on this machine, from a few real steps."""

from __future__ import annotations

from podsrl.config.schema import RunConfig
from podsrl.plan.probe import still_trainer
from podsrl.run.steps import training_step


def measure_pace(config: RunConfig, num_steps: int = 2) -> float:
    """Mean seconds of so many steps that learn and write nothing; UsageError: as `still_trainer`."""
    with still_trainer(config) as trainer:
        training_step(trainer)  # not counted: memory is taken and kernels are chosen
        return sum(training_step(trainer).total_seconds for _ in range(num_steps)) / num_steps
