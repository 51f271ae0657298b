"""How long a step takes on this machine, from a few real steps, and whether other processes took part of that time."""

from __future__ import annotations

from dataclasses import dataclass

from podsrl.config.schema import RunConfig
from podsrl.plan.machine_use import MachineUse, MachineWatch
from podsrl.plan.probe import still_trainer
from podsrl.run.steps import training_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The pace of a run's first steps."""

    step_seconds: float
    use: MachineUse
    """Of the machine meanwhile."""


def measure_pace(config: RunConfig, num_steps: int = 2) -> Pace:
    """Take so many steps without learning or writing anything; UsageError: as `still_trainer`."""
    with still_trainer(config) as trainer:
        training_step(trainer)  # not counted: memory is taken and kernels are chosen
        watch = MachineWatch()
        seconds = [training_step(trainer).total_seconds for _ in range(num_steps)]
        return Pace(step_seconds=sum(seconds) / num_steps, use=watch.use())
