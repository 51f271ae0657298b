"""The orders of a step: in which it generates and trains."""

from collections.abc import Callable

from podsrl.lib.resolve import Table
from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer

STEPS: Table[Callable[[Trainer], StepResult]] = Table(
    {"sync": "podsrl.run.steps.sync:sync", "ahead": "podsrl.run.steps.ahead:ahead"}
)
"""`steps.name` -> one step. With several processes all of them call it."""


def training_step(trainer: Trainer) -> StepResult:
    """One step, in the order that the config names. With several processes all call it."""
    return STEPS[trainer.config.steps.name](trainer)


__all__ = ["STEPS", "training_step"]
