"""The orders of a step: in which it generates and trains."""

from collections.abc import Callable, Mapping

from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer
from podsrl.run.steps.ahead import ahead
from podsrl.run.steps.sync import sync

STEPS: Mapping[str, Callable[[Trainer], StepResult]] = {"sync": sync, "ahead": ahead}
"""`steps.name` -> one step. With several processes all of them call it."""


def training_step(trainer: Trainer) -> StepResult:
    """One step, in the order that the config names. With several processes all call it."""
    return STEPS[trainer.config.steps.name](trainer)


__all__ = ["STEPS", "training_step"]
