"""What all reward functions of an attack say, and their weighted sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from podsrl.score.base import Rows, Values
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


def judge_all(panel: Panel, weights: Mapping[str, float], rows: Rows, tell: Callable[[int], None]) -> dict[str, Judged]:
    """Judge all rows by several rewards (name -> weight); `WHOLE` comes last where several have a weight.

    `tell` gets the number of judgements done. RewardError: a function breaks its contract for a batch.
    """
    found = dict[str, Judged]()
    for name, weight in weights.items():

        def told(done: int, before: int = len(found) * len(rows)) -> None:
            tell(before + done)

        found[name] = _judged(panel.judge_in_parts(name, rows, _PART, told), weight)
    weighted = [name for name, weight in weights.items() if weight]
    return found | ({WHOLE: _whole(found, weights, weighted)} if len(weighted) > 1 else {})


def _judged(values: Values, weight: float) -> Judged:
    sign = -1.0 if weight < 0 else 1.0
    return Judged(
        values=[None if row in values.faults else sign * value for row, value in enumerate(values.values)],
        faults={row: fault.reason for row, fault in values.faults.items()},
        seconds=values.seconds,
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
