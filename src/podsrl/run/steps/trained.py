"""What every order of a step has in common: from groups to new weights, and to the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podsrl.run.step.collected import Collected
from podsrl.run.step.learn import UpdateResult
from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group, Sample, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a step has trained on, and how."""

    version: int
    """Of the weights before."""
    groups: Sequence[Group]
    selections: Sequence[Selection]
    samples: Sequence[Sample]
    update: UpdateResult


def train_on(trainer: Trainer, collected: Collected) -> Trained:
    """Recall, choose, credit, update."""
    version = trainer.learner.version
    groups = trainer.recall(collected.groups)
    selections = trainer.choose(groups)
    samples = trainer.credit(groups, selections)
    update = trainer.update(trainer.make_batch(samples))
    return Trained(version=version, groups=groups, selections=selections, samples=samples, update=update)


def finish(trainer: Trainer, collected: Collected, trained: Trained) -> StepResult:
    """Count the step as done."""
    load = trainer.finish_step(collected)
    return StepResult(
        progress=trainer.progress,
        groups=tuple(trained.groups),
        num_recalled=len(trained.groups) - len(collected.groups),
        left_out=collected.left_out,
        probes=collected.probes,
        selections=tuple(trained.selections),
        samples=tuple(trained.samples),
        trained_version=trained.version,
        update=trained.update,
        lr=trainer.learner.updater.optimizer.lr,
        num_skipped_updates=trainer.learner.num_skipped_updates,
        weights_digest=trainer.weights_digest,
        load=load,
        seconds=trainer.clock.seconds,
        total_seconds=trainer.step_seconds,
        overlapped_seconds=collected.overlapped_seconds if trainer.config.steps.is_ahead else None,
    )
