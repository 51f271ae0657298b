"""Worker processes for reward functions that are slow, or may hang or crash.

Goes in: tasks and texts. Comes out: for each function and row a number or a `Fault`, the same whatever the number of
workers. Equal rows are judged once. Judging goes on while the main process does something else, such as generating.
Each completion has a time limit, and none can stop a run.

Where a known reward does not come to an end within its time or memory, that is the completion's doing: a wrong answer,
value 0. Were it invalid, writing what cannot be judged would save a policy from a negative advantage. A function of
the user's own may fail for other reasons (a service that is down), so there the rollout is invalid.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence

from podsrl.lib.machine import num_cores
from podsrl.score.base import Fault, FaultKind, Rows, Values, collect
from podsrl.score.dispatch import Dispatcher
from podsrl.score.find import IN_WORKERS, is_quick
from podsrl.score.row_job import RowJob, task_line
from podsrl.score.worker import Setup
from podsrl.types import Task

MAX_WORKERS = 16
"""By default: this many judge thousands of completions a second, and each takes some 100 MB."""
MEMORY_BYTES = 2 << 30
"""Data that a worker may hold."""
_MAX_LINES = 4096
"""Tasks whose text for the workers is remembered."""
_OF_THE_TEXT: frozenset[FaultKind] = frozenset({"timeout", "died", "exhausted"})
"""Faults of a known reward that its completion has caused."""
MAX_WAITING = 100_000
"""Submitted rows that nobody has asked for yet; an aborted generation leaves some."""


def default_workers() -> int:
    """One per core, shared out among the processes that torchrun started on this machine; at most `MAX_WORKERS`."""
    return max(1, min(MAX_WORKERS, num_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


class Workers:
    """Processes that judge by some row-form functions. They start with the first job, or `start`.

    Args:
        names: of the functions, as `podsrl.score.find.find_reward` knows them.
        num_workers: processes; 0: `default_workers()`.
        timeout_seconds: limit for one function on one completion.
        memory_bytes: data that one worker may hold.
        is_capped: whether the time-outs between two calls of `forget` lower the limit; see `podsrl.score.dispatch`.

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
        is_capped: bool = False,
    ) -> None:
        self._names = tuple(names)
        self._jobs: dict[tuple[str, int, str], tuple[Task, RowJob]] = {}  # by function, task object and text
        self._lines: dict[tuple[int, bool], tuple[Task, str]] = {}
        setup = Setup(names=self._names, memory_bytes=memory_bytes)
        self._dispatcher = Dispatcher(setup, num_workers or default_workers(), timeout_seconds, is_capped=is_capped)
        self._end = weakref.finalize(self, self._dispatcher.close)

    def start(self) -> None:
        """Begin to start the processes, without waiting for them."""
        self._dispatcher.add([])

    def submit(self, tasks: Sequence[Task], texts: Sequence[str]) -> None:
        """Begin to judge, by every function, what is not judged yet.

        Raises:
            RewardError: a column of a task cannot be sent to a worker.
        """
        new = []
        for task, text in zip(tasks, texts, strict=True):
            for name in self._names:
                key = (name, id(task), text)
                if key not in self._jobs:
                    job = RowJob(name, self._line(name, task), text)
                    self._jobs[key] = task, job  # the task is held, so that its id stays its own
                    new.append(job)
        if new:
            self._dispatcher.add(new)

    def judge(self, name: str, rows: Rows) -> Values:
        """Judge a batch by one of the functions.

        Raises:
            RewardError: the workers cannot be started, or a column of a task cannot be sent to them.
        """
        self.submit(rows.tasks, rows.texts)
        outcomes = [self._dispatcher.outcome(job) for job in self._jobs_of(name, rows)]
        if name not in IN_WORKERS:
            return collect(outcomes)
        stopped = {
            row: outcome
            for row, outcome in enumerate(outcomes)
            if isinstance(outcome, Fault) and outcome.kind in _OF_THE_TEXT
        }
        found = collect([0.0 if row in stopped else outcome for row, outcome in enumerate(outcomes)])
        return Values(values=found.values, faults=found.faults, stopped=stopped)

    def seconds(self, name: str, rows: Rows) -> list[float]:
        """Say how long each row of a judged batch took one of the functions."""
        return [job.seconds for job in self._jobs_of(name, rows)]

    def _jobs_of(self, name: str, rows: Rows) -> list[RowJob]:
        return [self._jobs[name, id(task), text][1] for task, text in zip(rows.tasks, rows.texts, strict=True)]

    def _line(self, name: str, task: Task) -> str:
        """A task's text for the workers; the known functions read no columns."""
        is_known = name in IN_WORKERS or is_quick(name)
        key = (id(task), is_known)
        if key not in self._lines:
            if len(self._lines) >= _MAX_LINES:
                self._lines.clear()
            self._lines[key] = task, task_line(task, reads=lambda column: not is_known)
        return self._lines[key][1]

    def forget(self, rows: Rows) -> None:
        """End a step: drop what is known about a judged batch, and the oldest of what was never asked for."""
        self._dispatcher.new_step()
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
