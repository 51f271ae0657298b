"""Where in its work a process is: written into a byte that another process reads after a kill."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

PLACES = (
    "before the command",
    "read the options",
    "load data and model",
    "verify checkpoints",
    "load a checkpoint",
    "cut the logs back",
    "between two stages",
    "generate",
    "score",
    "select",
    "update",
    "sync",
    "record",
    "evaluate",
    "write a line of a log",
    "write a checkpoint",
    "remove an old checkpoint",
    "write that it has ended",
    "after the command",
)
"""In about the order of a run; the byte is an index."""
STAGES = {"exchange": "score"}
"""Stage of the clock -> its place, where they have different names."""
FUNCTIONS = {
    ("podsrl.run.session", "prepare"): "load data and model",
    ("podsrl.run.session", "Trainer"): "load data and model",
    ("podsrl.run.session", "_newest_checkpoint"): "verify checkpoints",
    ("podsrl.run.session", "_load"): "load a checkpoint",
    ("podsrl.run.session", "_rewind"): "cut the logs back",
    ("podsrl.run.session", "train"): "between two stages",
    ("podsrl.run.session", "write_atomically"): "write that it has ended",
    ("podsrl.run.loop", "evaluate"): "evaluate",
    ("podsrl.run.saving.folder", "append_line"): "write a line of a log",
    ("podsrl.run.step.trainer_state", "save_checkpoint"): "write a checkpoint",
    ("podsrl.run.saving.checkpoint", "_remove"): "remove an old checkpoint",
}
"""Module and name by which it calls a function -> its place."""


class Mark:
    """The byte, in a file; the innermost place counts."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._byte = mmap.mmap(opened.fileno(), 1)

    def set(self, place: str) -> None:
        """The process is here from now on."""
        self._byte[0] = PLACES.index(place)

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """The process is here inside."""
        before = self._byte[0]
        self.set(place)
        try:
            yield
        finally:
            self._byte[0] = before

    def around(self, function: Callable[..., Any], place: str) -> Callable[..., Any]:
        """The function, at a place."""

        @wraps(function)
        def marked(*arguments: Any, **options: Any) -> Any:
            with self.at(place):
                return function(*arguments, **options)

        return marked

    def everywhere(self) -> None:
        """Set the byte in all places from now on; what is done there stays the same."""
        from podsrl.run.step.clock import StageClock

        for (module, name), place in FUNCTIONS.items():
            used = import_module(module)
            setattr(used, name, self.around(getattr(used, name), place))
        stage = StageClock.stage

        @contextmanager
        def marked_stage(clock: StageClock, name: str) -> Iterator[None]:
            place = STAGES.get(name, name)
            with self.at(place if place in PLACES else "between two stages"), stage(clock, name):
                yield

        StageClock.stage = marked_stage  # type: ignore[method-assign, assignment]


def read_mark(file: Path) -> str:
    """The place that a process was at last."""
    return PLACES[file.read_bytes()[0]]
