"""One step, as a sentence: sample, recall, choose, credit, update, sync. The order of the run is the desk's affair."""

from __future__ import annotations

from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer


def training_step(trainer: Trainer) -> StepResult:
    """Take one step. With several processes all of them call it."""
    version = trainer.learner.version
    collected = trainer.sample()
    groups = trainer.recall(collected.groups)
    selections = trainer.choose(groups)
    samples = trainer.credit(groups, selections)
    update = trainer.update(trainer.make_batch(samples))
    trainer.sync()
    load = trainer.finish_step(collected)
    return StepResult(
        progress=trainer.progress,
        groups=tuple(groups),
        num_recalled=len(groups) - len(collected.groups),
        left_out=collected.left_out,
        probes=collected.probes,
        selections=tuple(selections),
        samples=tuple(samples),
        trained_version=version,
        update=update,
        lr=trainer.learner.updater.optimizer.lr,
        num_skipped_updates=trainer.learner.num_skipped_updates,
        weights_digest=trainer.weights_digest,
        load=load,
        seconds=trainer.clock.seconds,
        total_seconds=trainer.step_seconds,
        overlapped_seconds=collected.overlapped_seconds if trainer.config.order.is_ahead else None,
    )
