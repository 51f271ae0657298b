"""Start or resume a run in a folder: what `pods train` does, without a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from podsrl.config.files import read_tree
from podsrl.config.load import apply_overrides, build, dump, with_values
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError, short
from podsrl.lib.callbacks import Say
from podsrl.lib.logs import write_atomically
from podsrl.lib.machine import hardware_line
from podsrl.lib.signals import answered_by, interrupt, pausing
from podsrl.run.before.advice import stop_note
from podsrl.run.before.costs import with_costs
from podsrl.run.before.no_effect import Option, idle_notes, set_options
from podsrl.run.before.prepare import Prepared, prepare
from podsrl.run.due import Due
from podsrl.run.loop import Outcome, train
from podsrl.run.saving.changes import check_inputs, forbidden_changes
from podsrl.run.saving.checkpoint import Checkpoint, load_newest
from podsrl.run.saving.folder import RunFolder, refusing, wanted_run
from podsrl.run.saving.inputs import describe_inputs
from podsrl.run.starts import describe_start
from podsrl.run.step.agreement import check_same_weights, open_same_checkpoint
from podsrl.run.step.desk import OnAnswer
from podsrl.run.step.trainer import Trainer
from podsrl.run.tracked import Tracking, check_tracking, tracked
from podsrl.scale.processes import Processes, join_processes

Json = dict[str, Any]
STOPPING = b"\nstopping after this step, with a checkpoint; once more to stop at once\n"


def start(
    config: RunConfig,
    path: Path,
    *,
    on_record: Callable[[Json], None],
    say: Say,
    on_answer: OnAnswer | None = None,
    tracking: Tracking | None = None,
) -> Outcome:
    """Begin a new run in `path`.

    Args:
        tracking: runs what `record.trackers` names; needed where that names something.

    Raises:
        UsageError: something is wrong with the config, or a run is in `path` already. Nothing was written then.
    """
    config = with_costs(config)
    check_tracking(config, tracking)
    processes = join_processes(config.model.device, config.scale.timeout_seconds)
    with processes.watching():
        folder = RunFolder(path) if processes.is_main else None
        if folder is not None:
            folder.check_is_free()
        trainer = Trainer(config, processes=processes)
        with _locked(folder):
            if folder is not None:
                folder.create(dump(trainer.config))
            with tracked(tracking, trainer.config, folder, say, processes):
                return _run(trainer, folder, Due(), on_record, say, on_answer)


def resume(
    path: Path,
    overrides: Sequence[str],
    *,
    on_record: Callable[[Json], None],
    say: Say,
    on_answer: OnAnswer | None = None,
    allow_changes: bool = False,
    tracking: Tracking | None = None,
) -> Outcome:
    """Resume the run in `path` from its newest undamaged checkpoint; its numbers are those of an uninterrupted run.

    Args:
        overrides: may change `stop`, `checkpoint`, `record` and `scale`, sizes that decide the memory alone (`FREE` of
            `podsrl.run.before.memory_advice`), and servers' addresses, nothing else.
        allow_changes: go on although what the run reads is not what it was (`describe_inputs`); the log says so.
        tracking: as of `start`; the trackers go on with the run that they have.

    Raises:
        UsageError: no run is there; an override would change the numbers; a log has lost lines; or something changed
            that is not allowed.
        CheckpointError: there are checkpoints, and all are damaged.
    """
    config = read_resumed_config(path, overrides)
    check_tracking(config, tracking)
    processes = join_processes(config.model.device, config.scale.timeout_seconds)
    with processes.watching():
        folder = RunFolder(path) if processes.is_main else None
        with _locked(folder):
            checkpoint = _newest_checkpoint(RunFolder(path).checkpoints, processes)
            logs: Mapping[str, int] = {} if checkpoint is None else checkpoint.state["log_bytes"]
            if folder is not None and checkpoint is not None:
                folder.check_logs(logs, checkpoint.state["step"])
            parts = _prepare(config, processes, checkpoint, allow_changes)
            trainer, due = Trainer(config, processes=processes, parts=parts), Due()
            if checkpoint is not None:
                trainer.load(checkpoint, allow_changes=allow_changes)
                for line in checkpoint.damaged:
                    say(f"warning: {line}; going on from the checkpoint before it")
                due = Due.of(checkpoint.state)
            if folder is not None:
                folder.rewind(dump(config), logs)
            if trainer.change is not None:
                _note(f"what the run reads changed: {trainer.change}", trainer, folder, say)
            elif allow_changes and checkpoint is not None:
                say("--allow-changes has no effect: nothing changed")
            say(f"resumed {checkpoint.path.name}" if checkpoint else "no checkpoint yet: starting over")
            with tracked(tracking, config, folder, say, processes):
                return _run(trainer, folder, due, on_record, say, on_answer)


def _newest_checkpoint(folder: Path, processes: Processes) -> Checkpoint | None:
    """Process 0 verifies checkpoints, and all processes open the one that it found."""
    if processes.is_main:
        found = load_newest(folder)
        processes.broadcast(found and [found.path.name, found.digest])
        return found
    told = processes.broadcast(None)
    return None if told is None else open_same_checkpoint(folder / told[0], told[1], processes)


def _prepare(config: RunConfig, processes: Processes, checkpoint: Checkpoint | None, is_allowed: bool) -> Prepared:
    """The parts; a change of what they read that is not allowed ends here, before weights load."""
    with ExitStack() as on_error:
        parts = on_error.enter_context(closing(prepare(processes.place(config))))
        if checkpoint is not None:
            check_inputs(checkpoint, describe_inputs(config, parts.tasks, parts.tokenizer), is_allowed=is_allowed)
        on_error.pop_all()
    return parts


def _note(text: str, trainer: Trainer, folder: RunFolder | None, say: Say) -> None:
    """Print and log a change that the resume was allowed to ignore."""
    say(f"warning: {text}")
    if folder is not None:
        progress = trainer.progress
        seconds = {"seconds/train_elapsed": progress.train_seconds}
        folder.append("metrics.jsonl", {"step": progress.step, **seconds, "note": text})


def _locked(folder: RunFolder | None) -> AbstractContextManager[None]:
    """Process 0 locks the folder for all processes."""
    return nullcontext() if folder is None else folder.lock()


def read_resumed_config(path: Path, overrides: Sequence[str]) -> RunConfig:
    """The config of the run in `path` with the overrides that a resume may make.

    Raises:
        UsageError: no run is there, or an override would change its numbers.
    """
    folder = RunFolder(path)
    with refusing(f"--resume {short(str(folder.path))}", "give the folder of a run"):
        if not folder.config.is_file():
            raise UsageError(
                f"--resume {folder.path}: no config.toml in it, so no run was started there; {wanted_run(folder.path)}"
            )
        folder.check_files()
    tree = read_tree(folder.config)
    old = build(RunConfig, tree, str(folder.config))
    new = build(RunConfig, apply_overrides(tree, overrides), "with overrides")
    if forbidden := forbidden_changes(old.model_dump(mode="json"), new.model_dump(mode="json")):
        raise UsageError(
            f"--resume {folder.path}: these would change the run's numbers: {', '.join(forbidden)}; "
            "drop them, or start a new run (only stop, checkpoint, record and scale may change, what decides memory "
            "alone, servers' addresses, and, to a higher one, rollouts.max_prompt_tokens)"
        )
    return new


def _run(
    trainer: Trainer,
    folder: RunFolder | None,
    due: Due,
    on_record: Callable[[Json], None],
    say: Say,
    on_answer: OnAnswer | None,
) -> Outcome:
    check_same_weights(trainer.weights_digest, trainer.processes)
    if folder is not None:
        folder.append(folder.STARTS, {**describe_start(trainer.progress.step), "setup": _setup(trainer)})
    for line in (*trainer.parts.notes, *trainer.choices, trainer.policy.description, *trainer.policy.notes):
        say(line)
    say(stop_note(trainer.tokenizer, trainer.stop_token_ids, trainer.config.rollouts.stop_strings))
    if not trainer.processes.is_alone:
        say(f"{trainer.processes.num_processes} processes, {trainer.config.scale.strategy}")
    for line in idle_notes(_options(trainer)):
        say(line)
    for warning in (*trainer.parts.warnings, *trainer.warnings):
        say(f"warning: {warning}")
    with _stop_on_signal() as is_asked, _pausing(trainer) as pause:

        def should_stop() -> bool:
            pause()
            return is_asked()

        try:
            outcome = train(
                trainer, folder, due, on_record=on_record, should_stop=should_stop, say=say, on_answer=on_answer
            )
        except BaseException:
            trainer.engine.close()  # it may hold what outlives this process
            raise
    if outcome == "finished" and folder is not None:
        progress = trainer.progress
        seconds = {"seconds/train_elapsed": progress.train_seconds}
        result = {"step": progress.step, **seconds, "hardware": hardware_line()}
        write_atomically(folder.finished, json.dumps(result))
    trainer.close()
    return outcome


def _pausing(trainer: Trainer) -> AbstractContextManager[Callable[[], None]]:
    """Where SIGTSTP has come, the process stops between two steps, so that no step's seconds hold the pause.

    Of several processes each stops at once: one that waited for a step of all would wait for those that stand still.
    """
    return pausing(trainer.settle) if trainer.processes.is_alone else nullcontext(lambda: None)


def _setup(trainer: Trainer) -> dict[str, str]:
    """What computes the run, in words."""
    return {
        "threads": trainer.threads,
        "matrix products": trainer.matmul,
        "generation": trainer.generation,
        "update": trainer.learner.updater.layout,
    }


def _options(trainer: Trainer) -> Iterator[Option]:
    """What the config sets, with what changes nothing, by the memory that this run has."""
    bound = getattr(trainer.engine, "kv_cache_bytes", None) or trainer.config.rollouts.kv_cache_bytes
    bounded = with_values(trainer.config, rollouts={"kv_cache_bytes": bound})
    return set_options(trainer.config, bounded, trainer.processes.num_processes)


@contextmanager
def _stop_on_signal() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C, SIGTERM or SIGHUP asks the loop to stop after this step; the second stops at once."""
    asked: list[int] = []

    def handle(number: int) -> None:
        if asked:
            interrupt(number)
        asked.append(number)
        with suppress(OSError):
            os.write(2, STOPPING)  # a handler must not use buffered output: the loop may be printing just now

    with answered_by(handle):
        yield lambda: bool(asked)
