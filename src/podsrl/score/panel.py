"""Reward functions called by name, each where it belongs: in a worker process, or, if it is known to be quick, here.

Goes in: names. Comes out: for each name and batch its `Values`. A run, `pods check-reward` and its attack all judge
this way, so what the two commands say about time limits and failures holds for a run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout

from podsrl.errors import RewardError
from podsrl.score.base import Rows, Values
from podsrl.score.batch_form import BatchForm
from podsrl.score.batch_worker import BatchWorker
from podsrl.score.find import HIDDEN_FROM_WORKERS, find_reward, is_found_by_workers, is_quick
from podsrl.score.forms import RowForm, judge_of
from podsrl.score.row_job import task_line
from podsrl.score.workers import Workers
from podsrl.types import Task


class Panel:
    """Judges batches by several reward functions.

    Functions that may be slow (mathematics, and a user's own) run in worker processes, which start with the first
    `start`, `submit` or `judge`: those of the row form in several, those of TRL's form in one that gets whole batches.
    Those that no worker can import, or whose columns no worker can be sent, run in the caller's thread.

    Args:
        options: name of each function, as `podsrl.score.find.find_reward` knows it -> the option it comes from.
        num_workers: processes for functions of the row form; 0: one per core.
        timeout_seconds: limit in a worker for one function on one completion.
        batch_timeout_seconds: limit for a function of TRL's form on a whole batch.
        is_capped: whether time-outs lower the limit of the row form until `forget`; see `podsrl.score.dispatch`.
        has_quick_here: whether known functions that take microseconds run in the caller's thread, without a limit.

    Raises:
        UsageError: an unknown name, or a function of neither form.

    Example:
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> with Panel({"correct": "--reward"}) as panel:
        ...     panel.judge("correct", Rows(tasks=[task], texts=["Answer: 3."], token_ids=[()])).values
        [1.0]
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        num_workers: int = 0,
        timeout_seconds: float = 10.0,
        batch_timeout_seconds: float = 300.0,
        is_capped: bool = False,
        has_quick_here: bool = True,
    ) -> None:
        self.forms = {name: judge_of(name, find_reward(name, option=option)) for name, option in options.items()}
        """Name -> the function in its form."""
        slow = [name for name in self.forms if not (has_quick_here and is_quick(name))]
        self._here = {name: HIDDEN_FROM_WORKERS for name in slow if not is_found_by_workers(name)}
        """Slow functions that run in this process, and why."""
        away = {name: self.forms[name] for name in slow if name not in self._here}
        rows = [name for name, form in away.items() if isinstance(form, RowForm)]
        self._rows = frozenset(rows)
        self._batches = {name: form for name, form in away.items() if isinstance(form, BatchForm)}
        self._workers = (
            Workers(rows, num_workers=num_workers, timeout_seconds=timeout_seconds, is_capped=is_capped)
            if rows
            else None
        )
        self._batch_worker = (
            BatchWorker(self._batches, timeout_seconds=batch_timeout_seconds) if self._batches else None
        )
        self._batch_seconds = 0.0

    @property
    def has_workers(self) -> bool:
        """Whether `submit` would begin anything."""
        return self._workers is not None

    @property
    def warnings(self) -> list[str]:
        """What has no time limit, a sentence each."""
        return [
            f"reward '{name}' runs in the main process, without a time limit: {why}" for name, why in self._here.items()
        ]

    def start(self, task: Task) -> None:
        """Begin to start the worker processes, without waiting for them.

        Args:
            task: any that will be judged. Functions of TRL's form stay in this process if they read a column of it
                that no worker can be sent.
        """
        for name, form in list(self._batches.items()):
            try:
                task_line(task, reads=form.reads)
            except RewardError as error:
                self._here[name] = str(error)
                del self._batches[name]
        for workers in (self._workers, self._batch_worker if self._batches else None):
            if workers is not None:
                workers.start()

    def submit(self, tasks: Sequence[Task], texts: Sequence[str]) -> None:
        """Begin to judge by the row-form functions in workers, while the caller does something else."""
        if self._workers is not None:
            self._workers.submit(tasks, texts)

    def judge(self, name: str, rows: Rows) -> Values:
        """Judge a batch by one of the functions.

        Raises:
            RewardError: the function breaks its contract for the whole batch, a column cannot be sent to a worker, or
                no worker can load it.
        """
        if self._workers is not None and name in self._rows:
            return self._workers.judge(name, rows)
        if self._batch_worker is not None and name in self._batches:
            values = self._batch_worker.judge(name, rows)
            self._batch_seconds = self._batch_worker.seconds
            return values
        start = time.perf_counter()
        with redirect_stdout(sys.stderr):  # as in the workers: what a reward prints is no part of a command's result
            values = self.forms[name](rows)
        self._batch_seconds = time.perf_counter() - start
        return values

    def judge_in_parts(
        self, name: str, rows: Rows, part_size: int, tell: Callable[[int], None]
    ) -> tuple[Values, list[float]]:
        """Judge a batch by one of the functions, part by part.

        Args:
            name: of the function.
            rows: the batch.
            part_size: rows that a function of TRL's form gets in one call.
            tell: called with the number of rows done so far, after each part.

        Returns:
            What `judge` does, and for each row its seconds: the mean of its part where all were timed together.

        Raises:
            RewardError: as of `judge`.
        """
        if rows.tasks:
            self.start(rows.tasks[0])
        if name in self._rows:
            self.submit(rows.tasks, rows.texts)
        found, seconds = Values(values=[], faults={}), list[float]()
        for start in range(0, len(rows), part_size):
            place = slice(start, start + part_size)
            part = Rows(tasks=rows.tasks[place], texts=rows.texts[place], token_ids=rows.token_ids[place])
            values = self.judge(name, part)
            found.values.extend(values.values)
            found.faults.update({start + row: fault for row, fault in values.faults.items()})
            found.stopped.update({start + row: fault for row, fault in values.stopped.items()})
            seconds += self._seconds(name, part)
            tell(len(seconds))
        return found, seconds

    def _seconds(self, name: str, rows: Rows) -> list[float]:
        """Of each row of the batch judged last."""
        if self._workers is not None and name in self._rows:
            return self._workers.seconds(name, rows)
        return [self._batch_seconds / len(rows)] * len(rows)

    def forget(self, rows: Rows) -> None:
        """End a step: see `Workers.forget`."""
        if self._workers is not None:
            self._workers.forget(rows)

    def close(self) -> None:
        """End the worker processes. They also end with the panel, and with the process that made it."""
        for workers in (self._workers, self._batch_worker):
            if workers is not None:
                workers.close()

    def __enter__(self) -> Panel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
