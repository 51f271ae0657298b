"""Start or resume a run in a folder: what `pods train` does, without a terminal."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from podsrl.bench.hardware import hardware_line
from podsrl.config.load import apply_overrides, build, changed_keys, dump, read_tree
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.run.checkpoint import Checkpoint, load_newest, open_checkpoint
from podsrl.run.folder import RunFolder, write_atomically
from podsrl.run.loop import Outcome, Schedule, train
from podsrl.run.trainer import CHANGEABLE, Trainer
from podsrl.scale.processes import Processes, join_processes

Json = dict[str, Any]
Say = Callable[[str], None]
STOPPING = b"\nstopping after this step, with a checkpoint; once more to stop at once\n"


def start(config: RunConfig, path: Path, *, on_record: Callable[[Json], None], say: Say) -> Outcome:
    """Begin a new run in `path`.

    Raises:
        UsageError: something is wrong with the config, or a run is in `path` already. Nothing was written then.
    """
    processes = join_processes(config.model.device, config.scale.timeout_seconds)
    with processes.watching():
        folder = RunFolder(path) if processes.is_main else None
        if folder is not None:
            folder.check_is_free()
        trainer = Trainer(config, processes=processes)
        if folder is not None:
            folder.create(dump(config))
        with _locked(folder):
            return _run(trainer, folder, Schedule(), on_record, say)


def resume(path: Path, overrides: Sequence[str], *, on_record: Callable[[Json], None], say: Say) -> Outcome:
    """Go on with the run in `path`, from its newest sound checkpoint, to the same numbers.

    Args:
        path: a run's folder.
        overrides: may change `stop`, `checkpoint`, `record` and `scale`, nothing else.

    Raises:
        UsageError: no run is there, or an override would change the numbers.
        CheckpointError: there are checkpoints, and all are damaged.
    """
    config = read_resumed_config(path, overrides)
    processes = join_processes(config.model.device, config.scale.timeout_seconds)
    with processes.watching():
        folder = RunFolder(path) if processes.is_main else None
        with _locked(folder):
            checkpoint = _newest_checkpoint(RunFolder(path).checkpoints, processes)
            for line in checkpoint.damaged if checkpoint else ():
                say(f"warning: {line}; going on from the checkpoint before it")
            trainer, schedule = Trainer(config, processes=processes), Schedule()
            if checkpoint is not None:
                trainer.load(checkpoint)
                schedule = Schedule(**checkpoint.state["schedule"])
            if folder is not None:
                _rewind(folder, config, checkpoint)
            say(f"resumed {checkpoint.path.name}" if checkpoint else "no checkpoint yet: starting over")
            return _run(trainer, folder, schedule, on_record, say)


def _newest_checkpoint(checkpoints: Path, processes: Processes) -> Checkpoint | None:
    """Process 0 verifies, and all take the one that it found sound."""
    if processes.is_main:
        found = load_newest(checkpoints)
        processes.broadcast(found.path.name if found else None)
        return found
    name = processes.broadcast(None)
    return None if name is None else open_checkpoint(checkpoints / name)


def _rewind(folder: RunFolder, config: RunConfig, checkpoint: Checkpoint | None) -> None:
    folder.finished.unlink(missing_ok=True)  # before the logs are cut: a run that is cut is not finished
    folder.rewind_logs(checkpoint.state["log_bytes"] if checkpoint else {})
    write_atomically(folder.config, dump(config))


def _locked(folder: RunFolder | None) -> AbstractContextManager[None]:
    """Process 0 holds the folder for all."""
    return nullcontext() if folder is None else folder.lock()


def read_resumed_config(path: Path, overrides: Sequence[str]) -> RunConfig:
    """The config of the run in `path` with the overrides that a resume may make.

    Raises:
        UsageError: no run is there, or an override would change its numbers.
    """
    folder = RunFolder(path)
    if not folder.config.is_file():
        raise UsageError(f"--resume {folder.path}: no config.toml in it, so no run was started there")
    tree = read_tree(folder.config)
    old = build(RunConfig, tree, str(folder.config))
    new = build(RunConfig, apply_overrides(tree, overrides), "with overrides")
    changes = changed_keys(old.model_dump(mode="json"), new.model_dump(mode="json"))
    forbidden = [line for line in changes if not line.startswith(CHANGEABLE)]
    if forbidden:
        raise UsageError(
            f"--resume {folder.path}: these would change the run's numbers: {', '.join(forbidden)}; "
            "drop them, or start a new run (only stop, checkpoint, record and scale may change)"
        )
    return new


def _run(
    trainer: Trainer, folder: RunFolder | None, schedule: Schedule, on_record: Callable[[Json], None], say: Say
) -> Outcome:
    say(trainer.threads)
    strategy = trainer.config.scale.strategy
    if not trainer.processes.is_alone:
        say(f"{trainer.processes.num_processes} processes, {strategy}")
    elif strategy != "ddp":
        say(f"warning: scale.strategy = {strategy!r} has no effect with one process")
    say(f"model: {trainer.policy.description}")
    for note in trainer.policy.notes:
        say(note)
    say(f"generation: {trainer.generation}")
    say(f"update: {trainer.updater.layout}")
    for warning in trainer.parts.warnings:
        say(f"warning: {warning}")
    with _stop_on_signal() as should_stop:
        outcome = train(trainer, folder, schedule, on_record=on_record, should_stop=should_stop)
    if outcome == "finished" and folder is not None:
        progress = trainer.progress
        result = {
            "step": progress.step,
            "seconds/train_elapsed": progress.train_seconds,
            "hardware": hardware_line(),
        }
        write_atomically(folder.finished, json.dumps(result))
    trainer.close()
    return outcome


@contextmanager
def _stop_on_signal() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C (or SIGTERM) asks the loop to stop after this step; the second stops at once."""
    asked: list[int] = []

    def handle(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        os.write(2, STOPPING)  # a handler must not use buffered output: the loop may be printing just now

    # Signals reach the main thread alone; a run in another one is stopped by its host.
    in_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if in_main else ()
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
