"""Calls reward functions by name: in worker processes, or in this process where a function is known to be quick.

A run, `pods check-reward` and its attack all judge this way, so the two commands' time limits and failures are those
of a run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace

from podsrl.lib.seeds import set_global_seed
from podsrl.score.base import Rows, Values
from podsrl.score.forms import BatchForm, RowForm, judge_of
from podsrl.score.rewards import REWARDS, SLOW, find_reward, is_importable_by_workers
from podsrl.score.workers.pool import BatchWorker, WorkerPool
from podsrl.types import Task

_NOT_IMPORTABLE = "a worker process cannot import its module; put it into a file of its own"


class Panel:
    """Judges batches by several reward functions.

    Functions that may be slow (mathematics, and a user's own) run in worker processes, which start with the first
    `start`, `submit` or `judge`: those of the row form in several, those of TRL's form in one that gets whole batches.
    Functions that a worker cannot import run in the caller's thread.

    Args:
        options: name of each function, as `find_reward` knows it -> the option it comes from.
        num_workers, timeout_seconds, is_capped: see `podsrl.score.workers.pool.WorkerPool`.
        batch_timeout_seconds: limit for a function of TRL's form on a whole batch.
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
        slow = [name for name in self.forms if not has_quick_here or name in SLOW or name not in REWARDS]
        self._here = {name: _NOT_IMPORTABLE for name in slow if not is_importable_by_workers(name)}
        """Slow functions that run in this process, and why."""
        away = {name: self.forms[name] for name in slow if name not in self._here}
        self._rows = [name for name, form in away.items() if isinstance(form, RowForm)]
        self._batches = {name: form for name, form in away.items() if isinstance(form, BatchForm)}
        self._pool = WorkerPool(
            self._rows, num_workers=num_workers, timeout_seconds=timeout_seconds, is_capped=is_capped
        )
        self._batch_worker = BatchWorker(self._batches, timeout_seconds=batch_timeout_seconds)

    @property
    def has_workers(self) -> bool:
        """Whether `submit` would begin anything."""
        return bool(self._rows)

    @property
    def warnings(self) -> list[str]:
        """One sentence per function that has no time limit."""
        return [
            f"reward '{name}' runs in the main process, without a time limit: {why}" for name, why in self._here.items()
        ]

    def start(self) -> None:
        """Begin to start the worker processes, without waiting for them."""
        self._pool.start()
        if self._batches:
            self._batch_worker.start()

    def submit(self, tasks: Sequence[Task], texts: Sequence[str]) -> None:
        """Begin to judge by the row-form functions in workers, while the caller does something else."""
        self._pool.submit(tasks, texts)

    def is_ready(self, task: Task, text: str) -> bool:
        """Whether the workers have judged what was submitted; functions of TRL's form are not asked."""
        return self._pool.is_ready(task, text)

    def judge(self, name: str, rows: Rows) -> Values:
        """Judge a batch by one of the functions.

        Raises:
            RewardError: the function breaks its contract for the whole batch, a column cannot be sent to a worker, or
                no worker can load it.
        """
        if name in self._rows:
            return self._pool.judge(name, rows)
        if name in self._batches:
            return self._batch_worker.judge(name, rows)
        start = time.perf_counter()
        with redirect_stdout(sys.stderr):  # as in the workers: what a reward prints is no result of the command
            values = self.forms[name](rows)
        seconds = time.perf_counter() - start
        return replace(values, seconds=[seconds / len(rows)] * len(rows) if rows.tasks else [])

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

    def forget(self, tasks: Sequence[Task], texts: Sequence[str]) -> None:
        """Drop rows that are judged."""
        self._pool.forget(tasks, texts)

    def new_step(self) -> None:
        """Put the time limit, which time-outs may have lowered, back to its full length."""
        self._pool.new_step()

    def close(self) -> None:
        """End the worker processes. They also end with the panel, and with the process that made it."""
        self._pool.close()
        self._batch_worker.close()

    def __enter__(self) -> Panel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
