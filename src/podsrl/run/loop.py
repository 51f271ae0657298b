"""The loop: take a step, record it, evaluate and save where that is due."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from podsrl.errors import PodsError
from podsrl.run.collect import OnAnswer
from podsrl.run.due import Due
from podsrl.run.evaluate import evaluate
from podsrl.run.folder import RunFolder
from podsrl.run.metrics import group_records, step_metrics
from podsrl.run.step_result import StepResult
from podsrl.run.steps import training_step
from podsrl.run.trainer import Trainer

Json = dict[str, Any]
MAX_EMPTY_STEPS = 3
"""Steps in a row without a trainable group after which a run stops with the reason."""


class NothingToLearn(PodsError):
    """Several steps in a row had no group with two valid rollouts."""


Outcome = Literal["finished", "interrupted"]


def record(folder: RunFolder, result: StepResult, num_groups: int = 0) -> Json:
    """Append a step to the logs: its metrics, and at most `num_groups` whole groups. Returns the metrics."""
    for line in islice(group_records(result), num_groups):
        folder.append("groups.jsonl", line)
    metrics = step_metrics(result)
    folder.append("metrics.jsonl", metrics)
    return metrics


def train(
    trainer: Trainer,
    folder: RunFolder | None,
    due: Due,
    *,
    on_record: Callable[[Json], None],
    should_stop: Callable[[], bool],
    on_answer: OnAnswer | None = None,
) -> Outcome:
    """Train until the config says stop, or until `should_stop`; then save.

    Args:
        trainer: new, or loaded from a checkpoint.
        folder: where logs and checkpoints go; None on all processes but the first.
        due: new, or loaded.
        on_record: called with every line of `metrics.jsonl`.
        should_stop: asked between steps; True (Ctrl-C) in any process ends the run after a checkpoint.
        on_answer: called after each completion of an evaluation.

    Raises:
        NothingToLearn: `MAX_EMPTY_STEPS` steps in a row trained on nothing.
        LostGenerator: what generates is gone.
        UsageError: a function of the user's own failed, such as a part of the budget.

    After these and any other `PodsError` a checkpoint is saved, if they came between two updates.
    """
    run = _Run(trainer, folder, due, on_record, on_answer)
    try:
        return _train(run, trainer, due, should_stop)
    except PodsError:
        run.save_what_is_whole()
        raise


def _train(run: _Run, trainer: Trainer, due: Due, should_stop: Callable[[], bool]) -> Outcome:
    num_empty = 0
    run.evaluate_if_due()
    while not due.is_end(trainer.config, trainer.progress):
        if any(trainer.processes.gather(should_stop())):
            run.save()
            run.wait_until_saved()
            return "interrupted"
        result = run.step()
        num_empty = num_empty + 1 if result.is_empty else 0
        run.evaluate_if_due()
        run.save_if_due(is_last=num_empty == MAX_EMPTY_STEPS)
        if num_empty == MAX_EMPTY_STEPS:
            run.wait_until_saved()
            raise NothingToLearn(
                f"{num_empty} steps in a row had no group with two valid rollouts; a checkpoint is saved. "
                f"Why the last were invalid: {step_metrics(result)['invalid_reasons']}"
            )
    run.save()
    run.wait_until_saved()
    return "finished"


class _Run:
    """A run's trainer with its logs, evaluations and checkpoints."""

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder | None,
        due: Due,
        on_record: Callable[[Json], None],
        on_answer: OnAnswer | None,
    ) -> None:
        self._trainer, self._folder, self._due = trainer, folder, due
        self._on_record, self._on_answer = on_record, on_answer
        self._version = trainer.learner.version  # of the weights after the last whole step

    def step(self) -> StepResult:
        """Take a step, and record it."""
        result = training_step(self._trainer)
        self._version = self._trainer.learner.version
        config = self._trainer.config
        if self._folder is None:
            self._on_record(step_metrics(result))
            return result
        is_due = self._due.is_group_record(config, result.progress)
        self._on_record(record(self._folder, result, config.record.num_groups if is_due else 0))
        return result

    def evaluate_if_due(self) -> None:
        trainer, due = self._trainer, self._due
        if not due.is_evaluation(trainer.config, trainer.progress):
            return
        line = evaluate(trainer, self._on_answer).to_json()
        if self._folder is not None:
            self._folder.append("metrics.jsonl", line)
        self._on_record(line)
        due.evaluated(trainer.config, trainer.progress)

    def save_if_due(self, *, is_last: bool) -> None:
        trainer, due = self._trainer, self._due
        by_time = trainer.processes.broadcast(due.is_save_by_time(trainer.config))
        if by_time or is_last or due.is_save_by_steps(trainer.config, trainer.progress):
            self.save()

    def save_what_is_whole(self) -> None:
        """Save, if all is as after a whole step; alone, since other processes do not know of the error.

        A run that is a step ahead would not go on with the same numbers without the step that had begun.
        """
        trainer = self._trainer
        has_step = trainer.collector.underway is not None or not trainer.config.steps.is_ahead
        is_whole = trainer.is_between_steps and trainer.learner.version == self._version
        if trainer.processes.is_alone and is_whole and has_step:
            with suppress(PodsError):  # the first error is the one to be told
                self.save()

    def save(self) -> None:
        if self._folder is None:
            self._trainer.save(Path(), {})  # gives its share of the weights, and writes nothing
            return
        due = self._due
        schedule = {"last_eval_step": due.last_eval_step, "next_eval_seconds": due.next_eval_seconds}
        extra = {"schedule": schedule, "log_bytes": self._folder.log_sizes()}
        self._trainer.save(self._folder.checkpoints, extra)
        due.saved()

    def wait_until_saved(self) -> None:
        """Keep every process until the first has written: a launcher ends all soon after one has ended."""
        self._trainer.processes.gather(None)
