"""How much of a run is done, and how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

Clock = Callable[[], float]
LEAST_ELAPSED_SECONDS = 1.0
"""The time left is estimated only after this long."""


def time_text(seconds: float) -> str:
    """A duration in its two largest units.

    Example:
        >>> [time_text(s) for s in (0.4, 59.6, 80, 2400, 7380)]
        ['0 s', '1 min', '1 min 20 s', '40 min', '2 h 3 min']
    """
    whole = round(seconds)
    if whole < 3600:
        sizes, units = (whole // 60, whole % 60), ("min", "s")
    else:
        sizes, units = (whole // 3600, whole % 3600 // 60), ("h", "min")
    return " ".join(f"{size} {unit}" for size, unit in zip(sizes, units, strict=True) if size) or "0 s"


def pace_text(seconds: float) -> str:
    """A duration that may be a part of a second: two digits below a minute.

    Example:
        >>> [pace_text(s) for s in (0.0123, 8.44, 59.9, 99.6, 10_540)]
        ['0.012 s', '8.4 s', '1 min', '1 min 40 s', '2 h 55 min']
    """
    return f"{seconds:.2g} s" if seconds < 59.5 else time_text(seconds)


def share_done(record: Mapping[str, Any], steps: int, seconds: float) -> float:
    """How much of a run is done at a line of `metrics.jsonl`, 0 .. 1; `stop.steps` and `stop.seconds` end it, 0: never.

    Example:
        >>> share_done({"step": 10, "seconds/train_elapsed": 30.0}, 100, 60.0)
        0.5
    """
    by_steps = record["step"] / steps if steps else 0.0
    by_time = record["seconds/train_elapsed"] / seconds if seconds else 0.0
    return float(min(1.0, max(by_steps, by_time)))


def seconds_left(elapsed: float, gained: float, share: float) -> float | None:
    """Time left at the pace of the newest `elapsed` seconds, in which the share done grew by `gained` to `share`.

    Returns:
        None while too little was seen for an estimate.
    """
    return elapsed * (1 - share) / gained if elapsed >= LEAST_ELAPSED_SECONDS and gained > 0 else None


class TimeLeft:
    """Estimates the time left from the mean speed since the first report.

    What was done before that report (loading, the part of a run that is resumed) does not count for the speed.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock, self._start = clock, clock()
        self._first: tuple[float, float] | None = None
        self._share = 0.0

    def report(self, share: float) -> None:
        """Take over the share done, 0 .. 1."""
        self._share = share
        if self._first is None:
            self._first = self._clock(), share

    @property
    def seconds(self) -> float | None:
        """Time left; None while too little was seen for an estimate."""
        if self._first is None:
            return None
        begun, share = self._first
        return seconds_left(self._clock() - begun, self._share - share, self._share)

    @property
    def text(self) -> str:
        """ "1 min 20 s left", or how long it has taken so far."""
        seconds = self.seconds
        return f"{time_text(self._clock() - self._start)} so far" if seconds is None else f"{time_text(seconds)} left"
