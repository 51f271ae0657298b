"""Calls reward functions by name: in worker processes, or in this process where a function is known to be quick.

A run, `pods check-reward` and its attack all judge this way, so the two commands' time limits and failures are those
of a run.

No completion can stop a run. Where a known reward does not come to an end within its time or memory, the completion
caused that: it is a wrong answer, value 0, or the share of a program's tests that had passed. If it made its rollout
invalid, a policy could avoid a negative advantage by writing what cannot be judged. A user's function may fail for
other reasons (a service that is down), so there the rollout is invalid.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace

from podsrl.lib.seeds import set_global_seed
from podsrl.score.base import Fault, FaultKind, Rows, Values, collect
from podsrl.score.forms import BatchForm, RowForm, judge_of
from podsrl.score.rewards import CODE, REMOTE, REWARDS, SLOW, find_reward, is_importable_by_workers, modules_of
from podsrl.score.workers.dispatcher import MEMORY_BYTES, START_SECONDS, Dispatcher
from podsrl.score.workers.jobs import RowsJob, write_task
from podsrl.score.workers.worker import Setup
from podsrl.types import Task

MAX_WAITING = 100_000
"""Submitted rows that `judge` was not called for yet; an aborted generation leaves some."""
_MAX_WRITTEN = 4096
"""Tasks whose form for the workers is cached."""
_CAUSED_BY_TEXT: frozenset[FaultKind] = frozenset({"timeout", "died", "exhausted"})
"""Faults of a known reward that its completion has caused."""


class Panel:
    """Judges batches by several reward functions, with the same values for any number of workers.

    Functions that may be slow (mathematics, and a user's own) run in worker processes, which start with the first
    `start`, `submit` or `judge`. Those of the row form run in several, each with a limit of memory; equal rows are
    judged once. Those of TRL's form get whole batches in one process that lives as long as the panel: what they keep in
    their modules stays there, they may hold models, and torch has the main process's number of threads. Functions that
    a worker cannot import run in the caller's thread.

    Args:
        options: name of each function, as `find_reward` knows it -> the option it comes from.
        num_workers: processes for the row form; 0: one per core.
        timeout_seconds: limit for a function of the row form on one completion; see `Dispatcher`.
        batch_timeout_seconds: limit for a function of TRL's form on a whole batch, and for loading it.
        is_run: known functions that take microseconds run in the caller's thread, without a limit, and time-outs lower
            the limit of the row form until `new_step`.

    Raises:
        UsageError: an unknown name, a function of neither form, or programs cannot be run on this machine.

    Example:
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> with Panel({"boxed_correct": "--reward"}, num_workers=1) as panel:
        ...     panel.judge("boxed_correct", Rows(tasks=[task], texts=["It is 3."], token_ids=[()])).values
        [1.0]
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        num_workers: int = 0,
        timeout_seconds: float = 10.0,
        batch_timeout_seconds: float = 300.0,
        is_run: bool = False,
    ) -> None:
        self.forms = {name: judge_of(name, find_reward(name, option=option)) for name, option in options.items()}
        """Name -> the function in its form."""
        for name in CODE.intersection(options):
            from podsrl.score.rewards.code import check_sandbox

            check_sandbox(name)
        slow = [name for name in self.forms if not is_run or name in SLOW or name not in REWARDS]
        self._here = [name for name in slow if not is_importable_by_workers(name)]
        """Slow functions that run in this process."""
        away = {name: self.forms[name] for name in slow if name not in self._here}
        self._rows = [name for name, form in away.items() if isinstance(form, RowForm)]
        self._batches = {name: form for name, form in away.items() if isinstance(form, BatchForm)}
        self._jobs: dict[tuple[str, int, str], tuple[Task, RowsJob]] = {}  # by function, task object and text
        self._written: dict[tuple[int, bool], tuple[Task, bytes]] = {}
        names, modules = tuple(self._rows), modules_of(self._rows)
        row_setup = Setup(names=names, memory_bytes=MEMORY_BYTES, modules=modules)
        self._row_workers = Dispatcher(row_setup, num_workers, timeout_seconds, is_capped=is_run)
        names, modules = tuple(self._batches), modules_of(self._batches)
        batch_setup = Setup(names=names, memory_bytes=None, modules=modules, cuda_device=_cuda_device())
        start_seconds = max(START_SECONDS, batch_timeout_seconds)
        self._batch_worker = Dispatcher(batch_setup, 1, batch_timeout_seconds, max_chunk=1, start_seconds=start_seconds)
        for dispatcher in (self._row_workers, self._batch_worker):
            weakref.finalize(self, dispatcher.close)

    @property
    def has_workers(self) -> bool:
        """Whether `submit` would begin anything."""
        return bool(self._rows)

    @property
    def warnings(self) -> list[str]:
        """One sentence per function that has no time limit."""
        why = "a worker process cannot import its module; put it into a file of its own"
        return [f"reward '{name}' runs in the main process, without a time limit: {why}" for name in self._here]

    def start(self) -> None:
        """Begin to start the worker processes, without waiting for them."""
        if self._rows:
            self._row_workers.add([])
        if self._batches:
            self._batch_worker.add([])

    def submit(self, tasks: Sequence[Task], texts: Sequence[str]) -> None:
        """Begin to judge by the row-form functions in workers what is not judged yet, while the caller goes on.

        RewardError: a column cannot be sent.
        """
        new = []
        for task, text in zip(tasks, texts, strict=True):
            for name in self._rows:
                key = (name, id(task), text)
                if key not in self._jobs:
                    job = RowsJob(name, [self._write(name, task)], [text], [()])
                    self._jobs[key] = task, job  # holds the task, so that no other object gets its id
                    new.append(job)
        if new:
            self._row_workers.add(new)

    def is_ready(self, task: Task, text: str) -> bool:
        """Whether the workers have judged what was submitted; functions of TRL's form are not asked."""
        jobs = [self._jobs.get((name, id(task), text)) for name in self._rows]
        return all(job is not None and job[1].outcome is not None for job in jobs)

    def judge(self, name: str, rows: Rows) -> Values:
        """Judge a batch by one of the functions.

        Raises:
            RewardError: the function breaks its contract for the whole batch, a column cannot be sent to a worker, or
                no worker can load it.
        """
        if name in self._rows:
            return self._judge_rows(name, rows)
        if len(rows) == 0:
            return collect([])
        if name in self._batches:
            return self._judge_batch(name, self._batches[name], rows)
        start = time.perf_counter()
        with redirect_stdout(sys.stderr):  # as in the workers: what a reward prints is no result of the command
            values = self.forms[name](rows)
        return replace(values, seconds=[(time.perf_counter() - start) / len(rows)] * len(rows))

    def _judge_rows(self, name: str, rows: Rows) -> Values:
        self.submit(rows.tasks, rows.texts)
        jobs = [self._jobs[name, id(task), text][1] for task, text in zip(rows.tasks, rows.texts, strict=True)]
        judged = [self._row_workers.outcome(job) for job in jobs]
        outcomes = [values.faults.get(0, values.values[0]) for values in judged]
        stopped = {
            row: outcome
            for row, outcome in enumerate(outcomes)
            if name in SLOW - REMOTE and isinstance(outcome, Fault) and outcome.kind in _CAUSED_BY_TEXT
        }
        late = {row: values.stopped[0] for row, values in enumerate(judged) if values.stopped}
        found = collect([0.0 if row in stopped else outcome for row, outcome in enumerate(outcomes)])
        return replace(found, stopped=stopped | late, seconds=[job.seconds for job in jobs])

    def _judge_batch(self, name: str, form: BatchForm, rows: Rows) -> Values:
        form.check(rows)
        written = {id(task): write_task(task, reads=form.reads) for task in rows.tasks}
        token_ids = rows.token_ids if form.reads("completion_ids") else [()] * len(rows)
        job = RowsJob(name, [written[id(task)] for task in rows.tasks], rows.texts, token_ids, _num_threads())
        self._batch_worker.add([job])
        values: Values = self._batch_worker.outcome(job)
        return replace(values, seconds=[job.seconds / len(rows)] * len(rows))

    def judge_in_parts(self, name: str, rows: Rows, part_size: int, tell: Callable[[int], None]) -> Values:
        """Judge a batch in parts of `part_size` rows, which a function of TRL's form gets in one call.

        `tell` gets the number of rows done after each part. The global random generators begin anew, as before each
        step of a run. RewardError: as of `judge`.
        """
        set_global_seed(0)
        self.start()
        if name in self._rows:
            self.submit(rows.tasks, rows.texts)
        found = Values(values=[], faults={})
        for start in range(0, len(rows), part_size):
            values = self.judge(name, rows.part(slice(start, start + part_size)))
            found.values.extend(values.values)
            found.faults.update({start + row: fault for row, fault in values.faults.items()})
            found.stopped.update({start + row: fault for row, fault in values.stopped.items()})
            found.seconds.extend(values.seconds)
            tell(len(found.values))
        return found

    def _write(self, name: str, task: Task) -> bytes:
        """A task's form for the workers, with its columns where the function reads any."""
        reads = name in CODE or name not in REWARDS
        key = (id(task), reads)
        if key not in self._written:
            if len(self._written) >= _MAX_WRITTEN:
                self._written.clear()
            self._written[key] = task, write_task(task, reads=lambda column: reads)
        return self._written[key][1]

    def forget(self, tasks: Sequence[Task], texts: Sequence[str]) -> None:
        """Drop rows that are judged; the oldest rows beyond `MAX_WAITING` are dropped too."""
        for name in self._rows:
            for task, text in zip(tasks, texts, strict=True):
                self._jobs.pop((name, id(task), text), None)
        for key in list(self._jobs)[: max(0, len(self._jobs) - MAX_WAITING)]:
            del self._jobs[key]

    def new_step(self) -> None:
        """Put the time limit, which time-outs may have lowered, back to its full length."""
        self._row_workers.new_step()

    def close(self) -> None:
        """End the worker processes. They also end with the panel, and with the process that made it."""
        self._row_workers.close()
        self._batch_worker.close()

    def __enter__(self) -> Panel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _num_threads() -> int:
    torch = sys.modules.get("torch")
    return 0 if torch is None else int(torch.get_num_threads())


def _cuda_device() -> int:
    """The GPU that a function in the main process would find as its own; 0 where it has chosen none."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0
