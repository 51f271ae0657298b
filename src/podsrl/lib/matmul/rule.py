"""From which size on oneDNN computes a product, and how timings decide that."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Use = Literal["few_rows", "many_rows", "update"]

FEW_ROWS = 32
"""A product of so few rows reads its weights for little arithmetic, and is judged by timings of its own."""
MARGIN = 1.1
"""oneDNN counts as faster where MKL takes this many times as long: what is nearer is as likely noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Multiplications of a product (rows · in · out) from which on oneDNN computes it; infinite: never."""

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
"""Rules to insist on. "onednn" leaves small products to MKL, since a call of oneDNN costs some microseconds more."""


def rule_from(stored: Any) -> Rule | None:
    """What `Rule.to_json` gave; None where it is something else."""
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
    """The rule that these timings speak for.

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
    """The measured size from which on oneDNN gains most: the sum of log(MKL's seconds / (`MARGIN` · oneDNN's)).

    A sum, so that one shape that was disturbed does not decide alone.
    """
    start, best, gain = math.inf, 0.0, 0.0
    for timing in sorted(timings, key=lambda t: t.work, reverse=True):
        gain += math.log(timing.mkl_seconds / (MARGIN * timing.onednn_seconds))
        if gain > best:
            start, best = timing.work, gain
    return start
