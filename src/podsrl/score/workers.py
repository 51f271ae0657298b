"""Worker processes for reward functions that are slow, or may hang or crash.

Goes in: tasks and texts. Comes out: for each function and row a number or a `Fault`, the same whatever the number of
workers. Equal rows are judged once. Judging goes on while the main process does something else, such as generating.
Each completion has a time limit, and none can stop a run.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence

from podsrl.score.base import Rows, Values, collect
from podsrl.score.dispatch import Dispatcher
from podsrl.score.member import Pending
from podsrl.score.worker import Setup
from podsrl.types import Task

MAX_WORKERS = 16
"""By default: this many judge thousands of completions a second, and each takes some 100 MB."""
MEMORY_BYTES = 2 << 30
"""Data that a worker may hold."""
MAX_WAITING = 100_000
"""Submitted rows that nobody has asked for yet; an aborted generation leaves some."""


def default_workers() -> int:
    """One a core, shared out among the processes that torchrun started on this machine; at most `MAX_WORKERS`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MAX_WORKERS, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


class Workers:
    """Processes that judge by some row-form functions. They start with the first job, or `start`.

    Args:
        names: of the functions, as `podsrl.score.find.find_reward` knows them.
        num_workers: processes; 0: `default_workers()`.
        timeout_seconds: limit for one function on one completion.
        memory_bytes: data that one worker may hold.

    Example:
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> with Workers(["boxed_correct"], num_workers=1) as workers:
        ...     workers.judge("boxed_correct", Rows(tasks=[task], texts=["It is 3."], token_ids=[()])).values
        [1.0]
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        num_workers: int = 0,
        timeout_seconds: float = 10.0,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._names = tuple(names)
        self._jobs: dict[tuple[str, int, str], Pending] = {}  # by function, task object and text
        setup = Setup(names=self._names, memory_bytes=memory_bytes)
        self._dispatcher = Dispatcher(setup, num_workers or default_workers(), timeout_seconds)
        self._end = weakref.finalize(self, self._dispatcher.close)

    def start(self) -> None:
        """Begin to start the processes, without waiting for them."""
        self._dispatcher.add([])

    def submit(self, tasks: Sequence[Task], texts: Sequence[str]) -> None:
        """Begin to judge, by every function, what is not judged yet."""
        new = []
        for task, text in zip(tasks, texts, strict=True):
            for name in self._names:
                key = (name, id(task), text)
                if key not in self._jobs:
                    self._jobs[key] = Pending(name, task, text)
                    new.append(self._jobs[key])
        if new:
            self._dispatcher.add(new)

    def judge(self, name: str, rows: Rows) -> Values:
        """Judge a batch by one of the functions.

        Raises:
            RewardError: the workers cannot be started, or a task cannot be sent to them.
        """
        self.submit(rows.tasks, rows.texts)
        keys = [(name, id(task), text) for task, text in zip(rows.tasks, rows.texts, strict=True)]
        return collect([self._dispatcher.outcome(self._jobs[key]) for key in keys])

    def seconds(self, name: str, rows: Rows) -> list[float]:
        """Say how long each row of a judged batch took one of the functions."""
        return [self._jobs[name, id(task), text].seconds for task, text in zip(rows.tasks, rows.texts, strict=True)]

    def forget(self, rows: Rows) -> None:
        """Drop what is known about a judged batch; and the oldest of what was submitted, but never asked for."""
        for name in self._names:
            for task, text in zip(rows.tasks, rows.texts, strict=True):
                self._jobs.pop((name, id(task), text), None)
        for key in list(self._jobs)[: max(0, len(self._jobs) - MAX_WAITING)]:
            del self._jobs[key]

    def close(self) -> None:
        """End the processes; nothing can be judged any more."""
        self._end()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
