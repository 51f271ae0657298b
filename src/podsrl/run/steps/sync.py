"""Generate, then train: sample, recall, choose, credit, update, sync."""

from __future__ import annotations

from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer
from podsrl.run.steps.trained import finish, train_on


def sync(trainer: Trainer) -> StepResult:
    """One step on rollouts of the weights that it trains."""
    collected = trainer.sample()
    trained = train_on(trainer, collected)
    trainer.sync()
    return finish(trainer, collected, trained)
