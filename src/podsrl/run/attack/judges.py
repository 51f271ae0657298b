"""All reward functions of an attack behind one call, and their weighted sum.

In: names with weights. Out: for each function, and for the whole reward, a `Judged`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from podsrl.score.base import Judge, Reward, Rows
from podsrl.score.forms import RowForm, judge_of
from podsrl.score.workers import Workers

WHOLE = "the whole reward"
_BATCH = 64
"""Rows between two looks at the progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one reward says about some completions."""

    values: list[float | None]
    """None where it failed. A reward with a negative weight has its sign changed: more is better for the policy."""
    faults: dict[int, str]
    """Row -> why it failed."""
    seconds: list[float]
    """For one row; 0 where only all rows together were timed."""


class Judges:
    """Judges completions by several rewards; those of the row form do so in worker processes.

    Args:
        rewards: name -> weight.
        functions: name -> function, for the same names and perhaps others, which count with weight 0.
        num_workers: processes; 0: one per core.
        timeout_seconds: for one function on one completion.

    Raises:
        UsageError: a function has neither form.
    """

    def __init__(
        self, rewards: Mapping[str, float], functions: Mapping[str, Reward], num_workers: int, timeout_seconds: float
    ) -> None:
        self.weights = {name: rewards.get(name, 0.0) for name in functions}
        self._judges = {name: judge_of(name, function) for name, function in functions.items()}
        in_workers = [name for name, judge in self._judges.items() if isinstance(judge, RowForm)]
        self._stack = ExitStack()
        self._workers = Workers(in_workers, num_workers=num_workers, timeout_seconds=timeout_seconds)
        self._stack.callback(self._workers.close)

    def __enter__(self) -> Judges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def judge(self, rows: Rows, tell: Callable[[int], None]) -> dict[str, Judged]:
        """Judge all rows by all rewards.

        Args:
            rows: tasks and texts.
            tell: called with the number of rows done so far.

        Returns:
            By name; with `WHOLE` last where several have a weight.

        Raises:
            RewardError: a function breaks its contract for a whole batch.
        """
        found = {name: self._one(name, judge, rows, tell) for name, judge in self._judges.items()}
        weighted = [name for name, weight in self.weights.items() if weight]
        return found | ({WHOLE: _whole(found, self.weights, weighted)} if len(weighted) > 1 else {})

    def _one(self, name: str, judge: Judge, rows: Rows, tell: Callable[[int], None]) -> Judged:
        if isinstance(judge, RowForm):
            self._workers.submit(rows.tasks, rows.texts)
            for start in range(0, len(rows), _BATCH):
                part = slice(start, start + _BATCH)
                self._workers.judge(
                    name, Rows(tasks=rows.tasks[part], texts=rows.texts[part], token_ids=rows.token_ids[part])
                )
                tell(min(start + _BATCH, len(rows)))
            values, seconds = self._workers.judge(name, rows), self._workers.seconds(name, rows)
        else:
            random.seed(0)  # as a run does before each step
            np.random.seed(0)
            with redirect_stdout(sys.stderr):  # what it prints is no part of the result
                values, seconds = judge(rows), [0.0] * len(rows)
        sign = -1.0 if self.weights[name] < 0 else 1.0
        return Judged(
            values=[None if row in values.faults else sign * value for row, value in enumerate(values.values)],
            faults={row: fault.reason for row, fault in values.faults.items()},
            seconds=seconds,
        )


def _whole(found: Mapping[str, Judged], weights: Mapping[str, float], names: list[str]) -> Judged:
    """The weighted sum; what fails for one is without a reward."""
    columns = list(zip(*(found[name].values for name in names), strict=True))
    sizes = [abs(weights[name]) for name in names]  # the signs are in the values already
    return Judged(
        values=[
            None if None in column else sum(size * value for size, value in zip(sizes, column, strict=True))
            for column in columns
        ],
        faults={row: reason for name in reversed(names) for row, reason in found[name].faults.items()},
        seconds=[sum(column) for column in zip(*(found[name].seconds for name in names), strict=True)],
    )
