"""All reward functions of an attack behind one call, and their weighted sum."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from podsrl.score.base import Rows
from podsrl.score.panel import Panel

WHOLE = "the whole reward"
_PART = 64
"""Rows that a function of TRL's form gets in one call: the limit, or a crash, makes all of them fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one reward says about some completions."""

    values: list[float | None]
    """None where it failed. A reward with a negative weight has its sign changed: more is better for the policy."""
    faults: dict[int, str]
    """Row -> why it failed."""
    seconds: list[float]
    """For one row; the mean of a call where a function of TRL's form judged several."""


class Judges:
    """Judges completions by several rewards (name -> weight) in worker processes.

    Raises:
        UsageError: a name is unknown, or a function has neither form.
    """

    def __init__(
        self, rewards: Mapping[str, float], num_workers: int, timeout_seconds: float, batch_timeout_seconds: float
    ) -> None:
        self.weights = dict(rewards)
        self._panel = Panel(
            dict.fromkeys(rewards, "--reward"),
            num_workers=num_workers,
            timeout_seconds=timeout_seconds,
            batch_timeout_seconds=batch_timeout_seconds,
            has_quick_here=False,
        )

    @property
    def warnings(self) -> list[str]:
        """Which rewards had no time limit, a sentence each."""
        return self._panel.warnings

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *error: object) -> None:
        self._panel.close()

    def judge(self, rows: Rows, tell: Callable[[int], None]) -> dict[str, Judged]:
        """Judge all rows by all rewards; `WHOLE` comes last where several have a weight.

        Args:
            rows: tasks and texts.
            tell: called with the number of rows done so far.

        Raises:
            RewardError: a function breaks its contract for a whole batch.
        """
        found = {name: self._one(name, rows, tell) for name in self.weights}
        weighted = [name for name, weight in self.weights.items() if weight]
        return found | ({WHOLE: _whole(found, self.weights, weighted)} if len(weighted) > 1 else {})

    def _one(self, name: str, rows: Rows, tell: Callable[[int], None]) -> Judged:
        random.seed(0)  # as a run does before each step
        np.random.seed(0)
        values, seconds = self._panel.judge_in_parts(name, rows, _PART, tell)
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
