"""The loop: take a step, record it, evaluate and save where that is due."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from podsrl.errors import PodsError
from podsrl.lib.callbacks import Say
from podsrl.run.due import Due
from podsrl.run.evaluate import evaluate
from podsrl.run.health import first_look
from podsrl.run.metrics import group_records, step_metrics
from podsrl.run.saving.folder import RunFolder
from podsrl.run.silence import NothingToLearn, Silence
from podsrl.run.step.desk import OnAnswer
from podsrl.run.step.step import training_step
from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group

Json = dict[str, Any]
Outcome = Literal["finished", "interrupted"]


def record(
    folder: RunFolder,
    result: StepResult,
    num_groups: int = 0,
    tokenizer: Any = None,
    line: Json | None = None,
) -> Json:
    """Append a step to the logs: its line, by default its metrics, and at most `num_groups` whole groups; the line."""
    for group in islice(group_records(result, tokenizer), num_groups):
        folder.append("groups.jsonl", group)
    line = step_metrics(result) if line is None else line
    folder.append("metrics.jsonl", line)
    return line


def train(
    trainer: Trainer,
    folder: RunFolder | None,
    due: Due,
    *,
    on_record: Callable[[Json], None],
    should_stop: Callable[[], bool],
    say: Say = lambda line: None,
    on_answer: OnAnswer | None = None,
) -> Outcome:
    """Train until the config says stop, or until `should_stop`; then save.

    Args:
        trainer: new, or loaded from a checkpoint.
        folder: where logs and checkpoints go; None on all processes but the first.
        due: new, or loaded.
        on_record: called with every line of `metrics.jsonl`.
        should_stop: asked between steps; True (Ctrl-C) in any process ends the run after a checkpoint.
        say: called with a line about the first evaluation's and the first step's answers, and where steps teach
            nothing (`podsrl.run.silence`).
        on_answer: called after each completion of an evaluation.

    Raises:
        NothingToLearn: `stop.without_signal` steps from the start taught nothing, or all rewards of several steps in a
            row were invalid. A checkpoint is saved.
        LostGenerator: what generates is gone.
        UsageError: a function of the user's own failed, such as a part of a system.

    After these, any other `PodsError`, and where a GPU's memory runs out, a checkpoint is saved, if they came between
    two updates.
    """
    run = _Run(trainer, folder, due, on_record, on_answer)
    say = say if trainer.processes.is_main else lambda line: None
    silence = Silence(trainer.config.stop.without_signal, due, say)
    try:
        return _train(run, trainer, due, silence, should_stop, say)
    except NothingToLearn:
        raise  # all processes have saved
    except (PodsError, torch.OutOfMemoryError):  # not the machine's own memory: writers of files abort without it
        run.save_what_is_whole()
        raise


def _train(
    run: _Run, trainer: Trainer, due: Due, silence: Silence, should_stop: Callable[[], bool], say: Say
) -> Outcome:
    if silence.is_hopeless(trainer.progress):  # a resumed run that had stopped
        raise silence.error(trainer.progress)
    has_form = trainer.parts.format is not None
    run.evaluate_if_due(lambda groups: say(first_look(groups, has_form=has_form)))
    while not due.is_end(trainer.config, trainer.progress):
        if any(trainer.processes.gather(should_stop())):
            run.save()
            run.wait_until_saved()
            return "interrupted"
        result = run.step()
        if result.progress.step == 1:
            say(first_look((*result.groups, *result.left_out), has_form=has_form))
        silence.take(result)
        run.evaluate_if_due()
        run.save_if_due(is_last=silence.is_end(trainer.progress))
        if silence.is_end(trainer.progress):
            run.wait_until_saved()
            raise silence.error(trainer.progress)
    run.save()
    run.wait_until_saved()
    silence.say(trainer.progress)
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
        training = self._trainer.parts.generator.training
        line = step_metrics(result)
        line |= {} if training is None else training.step_metrics(config, result)
        line |= self._trainer.parts.systems.metrics(line)
        if self._folder is not None:
            is_due = self._due.is_group_record(config, result.progress)
            num_groups = config.record.num_groups if is_due else 0
            record(self._folder, result, num_groups, self._trainer.tokenizer, line)
        self._on_record(line)
        return result

    def evaluate_if_due(self, on_look: Callable[[list[Group]], None] | None = None) -> None:
        trainer, due = self._trainer, self._due
        if not due.is_evaluation(trainer.config, trainer.progress):
            return
        line = evaluate(trainer, self._on_answer, on_look).to_json()
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

        A run with groups of later steps under way would not go on with the same numbers without those that are lost.
        """
        trainer = self._trainer
        is_whole = trainer.is_between_steps and trainer.learner.version == self._version and not trainer.desk.is_broken
        if trainer.processes.is_alone and is_whole:
            with suppress(Exception):  # the first error is the one to be told
                self.save()

    def save(self) -> None:
        if self._folder is None:
            self._trainer.save(Path(), {})  # gives its share of the weights, and writes nothing
            return
        due = self._due
        extra = {"schedule": due.schedule(), "log_bytes": self._folder.log_sizes()}
        self._trainer.save(self._folder.checkpoints, extra)
        due.saved()

    def wait_until_saved(self) -> None:
        """Keep every process until the first has written: a launcher ends all soon after one has ended."""
        self._trainer.processes.gather(None)
