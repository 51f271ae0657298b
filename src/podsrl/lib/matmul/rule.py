"""The size from which oneDNN computes a product, and how timings determine it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Use = Literal["few_rows", "many_rows", "update"]

FEW_ROWS = 32
"""Products of at most so many rows do little arithmetic per weight that they read; they have timings of their own."""
MARGIN = 1.1
"""oneDNN counts as faster where MKL takes this many times as long; a smaller difference may be noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Multiplications of a product (rows · in · out) from which oneDNN computes it; infinite: never."""

    few_rows: float
    """A product without gradient of at most `FEW_ROWS` rows."""
    many_rows: float
    """A product without gradient of more rows."""
    update: float
    """A product of an update; its two backward products go to the same library."""

    def to_json(self) -> dict[str, float | None]:
        """As JSON, where null means never."""
        return {name: None if value == math.inf else value for name, value in asdict(self).items()}

    def __str__(self) -> str:
        kinds = {f"up to {FEW_ROWS} rows": self.few_rows, "more rows": self.many_rows, "updates": self.update}
        starts = [f"{value:,.0f} ({kind})" for kind, value in kinds.items() if value < math.inf]
        return f"MKL; oneDNN for products of at least {', '.join(starts)} multiplications" if starts else "MKL"


NEVER = Rule(few_rows=math.inf, many_rows=math.inf, update=math.inf)
FIXED = {"mkl": NEVER, "onednn": Rule(few_rows=1e6, many_rows=1e6, update=1e6)}
"""Fixed rules. "onednn" leaves small products to MKL, because a call of oneDNN costs some microseconds more."""


def rule_from(stored: Any) -> Rule | None:
    """The inverse of `Rule.to_json`; None for anything else."""
    if not isinstance(stored, dict) or set(stored) != {field.name for field in fields(Rule)}:
        return None
    values = {name: math.inf if value is None else value for name, value in stored.items()}
    is_good = all(type(value) in (int, float) and value >= 0 for value in values.values())
    return Rule(**values) if is_good else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One shape on both libraries."""

    use: Use
    work: int
    """Multiplications of the forward product."""
    mkl_seconds: float
    onednn_seconds: float


def rule_of(timings: Iterable[Timing]) -> Rule:
    """The rule that follows from timings.

    Example:
        >>> loss = Timing(use="update", work=1000, mkl_seconds=1.0, onednn_seconds=2.0)
        >>> win = Timing(use="update", work=5000, mkl_seconds=8.0, onednn_seconds=4.0)
        >>> rule_of([loss, win]).to_json()
        {'few_rows': None, 'many_rows': None, 'update': 5000}
    """
    timings = list(timings)
    starts = {use: _start([t for t in timings if t.use == use]) for use in ("few_rows", "many_rows", "update")}
    return Rule(**starts)


def _start(timings: list[Timing]) -> float:
    """The measured size from which oneDNN gains most: the sum of log(MKL's seconds / (`MARGIN` · oneDNN's)).

    It is a sum, so that a single disturbed timing does not decide alone.
    """
    start, best, gain = math.inf, 0.0, 0.0
    for timing in sorted(timings, key=lambda t: t.work, reverse=True):
        gain += math.log(timing.mkl_seconds / (MARGIN * timing.onednn_seconds))
        if gain > best:
            start, best = timing.work, gain
    return start
