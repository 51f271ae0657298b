"""What the main process uses of the workers: `WorkerPool` for the row form, `BatchWorker` for TRL's form.

The values are the same for any number of workers. No completion can stop a run: each has a time limit.

Where a known reward does not come to an end within its time or memory, the completion caused that: it is a wrong
answer, value 0. If it made its rollout invalid, a policy could avoid a negative advantage by writing what cannot be
judged. A user's function may fail for other reasons (a service that is down), so there the rollout is invalid.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace

from podsrl.lib.machine import num_cores
from podsrl.score.base import Fault, FaultKind, Rows, Values, collect
from podsrl.score.forms import BatchForm
from podsrl.score.rewards import REWARDS, SLOW, modules_of
from podsrl.score.workers.dispatcher import START_SECONDS, Dispatcher
from podsrl.score.workers.jobs import RowsJob, write_task
from podsrl.score.workers.worker import Setup
from podsrl.types import Task

MAX_WORKERS = 16
"""By default: this many judge thousands of completions per second, and each takes some 100 MB."""
MEMORY_BYTES = 2 << 30
"""Data that a worker may hold."""
_MAX_SENT = 4096
"""Tasks whose form for the workers is cached."""
_CAUSED_BY_TEXT: frozenset[FaultKind] = frozenset({"timeout", "died", "exhausted"})
"""Faults of a known reward that its completion has caused."""
MAX_WAITING = 100_000
"""Submitted rows that `judge` was not called for yet; an aborted generation leaves some."""


def default_workers() -> int:
    """One per core, shared out among the processes that torchrun started on this machine; at most `MAX_WORKERS`."""
    return max(1, min(MAX_WORKERS, num_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


class WorkerPool:
    """Processes that judge by some row-form functions. They start with the first job, or `start`; none without a name.

    Equal rows are judged once. Judging goes on while the main process does something else, such as generating. There
    are `num_workers` processes (0: `default_workers()`), which hold at most `memory_bytes` of data each; the limits of
    seconds for one function on one completion are those of `Dispatcher`.

    Example:
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> with WorkerPool(["boxed_correct"], num_workers=1) as pool:
        ...     pool.judge("boxed_correct", Rows(tasks=[task], texts=["It is 3."], token_ids=[()])).values
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
        self._jobs: dict[tuple[str, int, str], tuple[Task, RowsJob]] = {}  # by function, task object and text
        self._sent: dict[tuple[int, bool], tuple[Task, bytes]] = {}
        setup = Setup(names=self._names, memory_bytes=memory_bytes, modules=modules_of(self._names))
        self._dispatcher = Dispatcher(setup, num_workers or default_workers(), timeout_seconds, is_capped=is_capped)
        self._end = weakref.finalize(self, self._dispatcher.close)

    def start(self) -> None:
        """Begin to start the processes, without waiting for them."""
        if self._names:
            self._dispatcher.add([])

    def submit(self, tasks: Sequence[Task], texts: Sequence[str]) -> None:
        """Begin to judge, by every function, what is not judged yet. RewardError: a column cannot be sent."""
        new = []
        for task, text in zip(tasks, texts, strict=True):
            for name in self._names:
                key = (name, id(task), text)
                if key not in self._jobs:
                    job = RowsJob(name, [self._write(name, task)], [text], [()])
                    self._jobs[key] = task, job  # holds the task, so that no other object gets its id
                    new.append(job)
        if new:
            self._dispatcher.add(new)

    def is_ready(self, task: Task, text: str) -> bool:
        """Whether every function has judged what was submitted."""
        jobs = [self._jobs.get((name, id(task), text)) for name in self._names]
        return all(job is not None and job[1].outcome is not None for job in jobs)

    def judge(self, name: str, rows: Rows) -> Values:
        """Judge by one of the functions. RewardError: the workers cannot start, or a column cannot be sent to them."""
        self.submit(rows.tasks, rows.texts)
        jobs = [self._jobs[name, id(task), text][1] for task, text in zip(rows.tasks, rows.texts, strict=True)]
        judged = [self._dispatcher.outcome(job) for job in jobs]
        outcomes = [values.faults.get(0, values.values[0]) for values in judged]
        stopped = {
            row: outcome
            for row, outcome in enumerate(outcomes)
            if name in SLOW and isinstance(outcome, Fault) and outcome.kind in _CAUSED_BY_TEXT
        }
        found = collect([0.0 if row in stopped else outcome for row, outcome in enumerate(outcomes)])
        return replace(found, stopped=stopped, seconds=[job.seconds for job in jobs])

    def _write(self, name: str, task: Task) -> bytes:
        """A task's form for the workers; the known functions read no columns."""
        is_known = name in REWARDS
        key = (id(task), is_known)
        if key not in self._sent:
            if len(self._sent) >= _MAX_SENT:
                self._sent.clear()
            self._sent[key] = task, write_task(task, reads=lambda column: not is_known)
        return self._sent[key][1]

    def forget(self, tasks: Sequence[Task], texts: Sequence[str]) -> None:
        """Drop rows that are judged; the oldest rows beyond `MAX_WAITING` are dropped too."""
        for name in self._names:
            for task, text in zip(tasks, texts, strict=True):
                self._jobs.pop((name, id(task), text), None)
        for key in list(self._jobs)[: max(0, len(self._jobs) - MAX_WAITING)]:
            del self._jobs[key]

    def new_step(self) -> None:
        """Put the time limit back to its full length."""
        self._dispatcher.new_step()

    def close(self) -> None:
        """End the processes; nothing can be judged any more."""
        self._end()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BatchWorker:
    """One process for all functions of TRL's form, each called with a whole batch, within a time limit.

    The process starts with the first batch, or `start`, and lives as long as the run, so what a function keeps in its
    module stays there; only a call that hits the limit, or ends the process, makes it start again. Such a function
    often holds a model: there is no limit of memory, and torch has the main process's number of threads. The limit also
    holds for loading the functions, and after an exception for the calls row by row.
    """

    def __init__(self, forms: Mapping[str, BatchForm], *, timeout_seconds: float) -> None:
        self._forms = dict(forms)
        names = tuple(forms)
        setup = Setup(names=names, memory_bytes=None, modules=modules_of(names), cuda_device=_cuda_device())
        start_seconds = max(START_SECONDS, timeout_seconds)
        self._dispatcher = Dispatcher(setup, 1, timeout_seconds, max_chunk=1, start_seconds=start_seconds)
        self._end = weakref.finalize(self, self._dispatcher.close)

    def start(self) -> None:
        """Begin to start the process, without waiting for it."""
        self._dispatcher.add([])

    def judge(self, name: str, rows: Rows) -> Values:
        """Judge a batch by one of the functions.

        Raises:
            RewardError: the function breaks its contract for the whole batch, wants a column that no task has or that
                cannot be sent to another process, or cannot be loaded there.
        """
        if len(rows) == 0:
            return collect([])
        form = self._forms[name]
        form.check(rows)
        written = {id(task): write_task(task, reads=form.reads) for task in rows.tasks}
        token_ids = rows.token_ids if form.reads("completion_ids") else [()] * len(rows)
        tasks = [written[id(task)] for task in rows.tasks]
        job = RowsJob(name, tasks, rows.texts, token_ids, _num_threads())
        self._dispatcher.add([job])
        outcome: Values = self._dispatcher.outcome(job)
        return replace(outcome, seconds=[job.seconds / len(rows)] * len(rows))

    def close(self) -> None:
        """End the process; nothing can be judged any more."""
        self._end()


def _cuda_device() -> int:
    """The GPU that a function in the main process would find as its own; 0 where it has chosen none."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0


def _num_threads() -> int:
    torch = sys.modules.get("torch")
    return 0 if torch is None else int(torch.get_num_threads())
