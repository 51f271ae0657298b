"""The loop: choose tasks; generate a group for each; score; select; make a batch; update; sync; record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from podsrl.errors import PodsError
from podsrl.generate import EngineStats
from podsrl.lib.seeds import seed_globals
from podsrl.run.ask import OnAnswer
from podsrl.run.clock import StageClock
from podsrl.run.evaluate import evaluate
from podsrl.run.folder import RunFolder
from podsrl.run.group_log import record_group
from podsrl.run.metrics import gather_load, seconds_metrics, step_metrics
from podsrl.run.trainer import Trainer
from podsrl.score import ScoreStats

Json = dict[str, Any]
MAX_EMPTY_STEPS = 3
"""Steps in a row without a trainable group after which a run stops and says why, instead of idling on."""


class NothingToLearn(PodsError):
    """Every rollout of several steps in a row was invalid."""


Outcome = Literal["finished", "interrupted"]


@dataclass(slots=True)
class Schedule:
    """When the next evaluation by time is due; saved with a checkpoint."""

    last_eval_step: int = -1
    next_eval_seconds: float = 0.0


def training_step(trainer: Trainer, folder: RunFolder | None = None) -> Json:
    """One step, whole. Returns its metrics, which it also appends to the folder's log."""
    clock = StageClock(trainer.model.device)
    seed_globals(trainer.config.seed, trainer.progress.step, rank=trainer.processes.rank)
    trainer.engine.peak_kv_bytes, trainer.engine.stats = 0, EngineStats()  # evaluation's own do not count
    trainer.scorer.stats = ScoreStats()
    with clock.stage("generate"):
        tasks = trainer.next_tasks()
    groups = trainer.sample(tasks, stage=clock.stage)
    with clock.stage("select"):
        selections = trainer.choose(groups)
        advantages = trainer.advantages(groups, selections)
        batch = trainer.make_batch(groups, selections, advantages)
    with clock.stage("update"):
        stats, grad_norm = trainer.update(batch)
    with clock.stage("sync"):
        trainer.sync()
    with clock.stage("record"):
        trainer.finish_step()
        metrics = step_metrics(
            trainer.progress,
            groups,
            selections,
            stats,
            grad_norm,
            num_chunks=trainer.config.select.num_chunks,
            num_skipped_updates=trainer.updater.optimizer.num_skipped_steps,
            weights_digest=trainer.weights_digest,
            load=gather_load(trainer),
        )
        if folder is not None and _is_due(trainer.config.record.groups_every_steps, trainer.progress.step):
            for i in range(min(trainer.config.record.num_groups, len(groups))):
                record = record_group(trainer.progress.step, groups[i], selections[i], advantages[i].tolist())
                folder.append("groups.jsonl", record.to_json())
    total = trainer.processes.broadcast(clock.total())  # process 0's clock decides when a run evaluates and ends
    trainer.add_seconds(total)
    metrics |= seconds_metrics(clock.seconds, total, trainer.progress.train_seconds)
    if folder is not None:
        folder.append("metrics.jsonl", metrics)
    return metrics


def train(
    trainer: Trainer,
    folder: RunFolder | None,
    schedule: Schedule,
    *,
    on_record: Callable[[Json], None],
    should_stop: Callable[[], bool],
    on_answer: OnAnswer | None = None,
) -> Outcome:
    """Train until the config says stop, or until `should_stop`; then save.

    Args:
        trainer: new, or loaded from a checkpoint.
        folder: where logs and checkpoints go; None on all processes but the first.
        schedule: new, or loaded.
        on_record: called with every line that goes into `metrics.jsonl`.
        should_stop: asked between steps; True (Ctrl-C) ends the run after a checkpoint. Process 0's answer counts.
        on_answer: told how far an evaluation is.
    """
    last_save, num_empty = time.monotonic(), 0
    _evaluate_if_due(trainer, folder, schedule, on_record, on_answer)
    while not _is_done(trainer):
        if trainer.processes.broadcast(should_stop()):
            _save(trainer, folder, schedule)
            return "interrupted"
        record = training_step(trainer, folder)
        on_record(record)
        num_empty = num_empty + 1 if record["reward/kept"] is None else 0  # nothing was kept, of however many groups
        _evaluate_if_due(trainer, folder, schedule, on_record, on_answer)
        options = trainer.config.checkpoint
        by_time = options.every_seconds > 0 and time.monotonic() - last_save >= options.every_seconds
        by_time = trainer.processes.broadcast(by_time)
        if by_time or _is_due(options.every_steps, trainer.progress.step) or num_empty == MAX_EMPTY_STEPS:
            _save(trainer, folder, schedule)
            last_save = time.monotonic()
        if num_empty == MAX_EMPTY_STEPS:
            raise NothingToLearn(
                f"{num_empty} steps in a row had no group with two valid rollouts; a checkpoint is saved. "
                f"Why the last were invalid: {record['invalid_reasons']}"
            )
    _save(trainer, folder, schedule)
    return "finished"


def _evaluate_if_due(
    trainer: Trainer,
    folder: RunFolder | None,
    schedule: Schedule,
    on_record: Callable[[Json], None],
    on_answer: OnAnswer | None,
) -> None:
    """At the start, at the end, and each time the config's seconds or steps have passed; once a step at most."""
    options, progress = trainer.config.eval, trainer.progress
    by_time = options.every_seconds > 0 and progress.train_seconds >= schedule.next_eval_seconds
    by_steps = options.every_steps > 0 and progress.step % options.every_steps == 0
    if progress.step == schedule.last_eval_step or not (by_time or by_steps or progress.step == 0 or _is_done(trainer)):
        return
    record = evaluate(trainer, on_answer).to_json()
    if folder is not None:
        folder.append("metrics.jsonl", record)
    on_record(record)
    schedule.last_eval_step = progress.step
    if options.every_seconds > 0:
        schedule.next_eval_seconds = (progress.train_seconds // options.every_seconds + 1) * options.every_seconds


def _is_done(trainer: Trainer) -> bool:
    stop, progress = trainer.config.stop, trainer.progress
    return 0 < stop.steps <= progress.step or 0 < stop.seconds <= progress.train_seconds


def _is_due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


def _save(trainer: Trainer, folder: RunFolder | None, schedule: Schedule) -> None:
    if folder is None:
        trainer.save(Path(), {})  # gives its share of the weights, and writes nothing
        return
    extra = {
        "schedule": {"last_eval_step": schedule.last_eval_step, "next_eval_seconds": schedule.next_eval_seconds},
        "log_bytes": folder.log_sizes(),
    }
    trainer.save(folder.checkpoints, extra)
