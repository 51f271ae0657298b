"""A speed-up with its 95 % interval: the record, and its form in text and in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupInterval:
    """A speed-up with its 95 % interval over seeds."""

    point: float | None
    """Speed-up of the mean curves over all seeds; None if the target is never reached."""
    low: float
    """Lower end; 0 where the arm may never reach the target, and for one seed."""
    high: float
    """Upper end; infinite where there is no bound, as for one seed."""
    share_unreached: float
    """Share of resamples that never reach the target, 0 to 1."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval tells the arms apart: 1 is not in it."""
        return self.point is not None and not self.low <= 1 <= self.high

    @property
    def range_text(self) -> str:
        """Both ends, as in "0.90–∞"."""
        return range_text(self.low, self.high)

    @property
    def text(self) -> str:
        """Point and interval, as in "1.83× (1.60–2.05)"; "(0–∞)" where nothing is known, as for one seed."""
        return "not reached" if self.point is None else f"{self.point:.2f}× ({self.range_text})"

    @property
    def full_text(self) -> str:
        """`text`, and how many of the resamples miss the target if some do."""
        if self.point is None or self.share_unreached == 0:
            return self.text
        return f"{self.text}, not reached in {self.share_unreached:.0%} of resamples"

    @property
    def inverse(self) -> SpeedupInterval:
        """How many times as much is needed, in place of how many times less.

        Example:
            >>> SpeedupInterval(point=0.25, low=0, high=0.5, share_unreached=0).inverse.text
            '4.00× (2.00–∞)'
        """
        point = None if self.point is None else 1 / self.point
        low, high = 1 / self.high if self.high else math.inf, 1 / self.low if self.low else math.inf
        return SpeedupInterval(point=point, low=low, high=high, share_unreached=self.share_unreached)

    def to_json(self) -> dict[str, float | None]:
        """The fields as JSON knows them; an infinite end is None."""
        high = self.high if math.isfinite(self.high) else None
        return {"point": self.point, "low": self.low, "high": high, "share_unreached": self.share_unreached}

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> SpeedupInterval:
        """Read what `to_json` gave.

        Example:
            >>> SpeedupInterval.from_json({"point": 2, "low": 0.9, "high": None, "share_unreached": 0}).text
            '2.00× (0.90–∞)'
        """
        point, high = entry["point"], entry["high"]
        return SpeedupInterval(
            point=None if point is None else float(point),
            low=float(entry["low"]),
            high=math.inf if high is None else float(high),
            share_unreached=float(entry["share_unreached"]),
        )


NONE = SpeedupInterval(point=None, low=0.0, high=math.inf, share_unreached=1.0)
"""Nothing was reached, or there was nothing to reach."""
UNCLEAR = "the interval holds 1: more seeds would tell"


def range_text(low: float, high: float) -> str:
    """Both ends of an interval, as in "0.90–∞"."""
    return f"{end_text(low)}–{end_text(high)}"


def end_text(value: float) -> str:
    """Write an end of an interval: two decimals, none from 100 on, "∞" from 1,000 on.

    Example:
        >>> [end_text(value) for value in (0, 1.234, 250.3, 1e6)]
        ['0', '1.23', '250', '∞']
    """
    if value == 0 or value >= 1000:
        return "∞" if value else "0"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def quickest(speedups: Mapping[str, SpeedupInterval], baseline: str) -> str | None:
    """The arm with the largest speed-up over the baseline; None where no other arm reaches the target.

    Example:
        >>> known = {"low": 0.0, "high": math.inf, "share_unreached": 0.0}
        >>> found = {arm: SpeedupInterval(point=x, **known) for arm, x in {"a": 1.0, "b": 0.9, "c": None}.items()}
        >>> quickest(found, "a")
        'b'
    """
    points = {arm: found.point for arm, found in speedups.items() if found.point is not None and arm != baseline}
    return max(points, key=lambda arm: points[arm], default=None)


def over_each_text(arm: str, speedups_over: Mapping[str, Mapping[str, SpeedupInterval]], fraction: float) -> str:
    """How much sooner an arm is than each of the others, in one sentence.

    Args:
        speedups_over: baseline -> arm -> speed-up over this baseline.
        fraction: of each baseline's best mean accuracy, which is the target.

    Example:
        >>> found = SpeedupInterval(point=1.5, low=1.1, high=2.0, share_unreached=0.0)
        >>> over_each_text("pods", {"grpo": {"pods": found}, "pods": {}}, 0.99)
        'pods reaches 99 % of the best accuracy of grpo 1.50× (1.10–2.00) as fast'
        >>> found = SpeedupInterval(point=1.5, low=0.9, high=2.0, share_unreached=0.0)
        >>> over_each_text("pods", {"grpo": {"pods": found}}, 0.99).partition("; ")[2]
        'the interval holds 1: more seeds would tell'
    """
    texts = [
        f"of {base} {found[arm].text} as fast" if found[arm].point is not None else f"of {base} not at all"
        for base, found in speedups_over.items()
        if base != arm
    ]
    others = [found[arm] for base, found in speedups_over.items() if base != arm and found[arm].point is not None]
    hint = UNCLEAR if len(others) == 1 else "where an interval holds 1, more seeds would tell"
    unclear = "" if all(found.is_clear for found in others) else f"; {hint}"
    return f"{arm} reaches {fraction * 100:g} % of the best accuracy {', '.join(texts)}{unclear}"
