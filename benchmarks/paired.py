"""Runs of several arms on the same seeds: which are finished, their times to an accuracy, and speed-ups."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from podsrl.compare.interval import SpeedupInterval
from podsrl.compare.student import student_t
from podsrl.lib.logs import append_line, read_lines

Json = dict[str, Any]
Time = tuple[float, bool]
"""Seconds, and whether the accuracy was reached; otherwise they are all seconds that the run has trained."""
Run = Sequence[tuple[float, float]]
"""Training seconds and accuracy of each evaluation of a run."""


class Finished:
    """Finished parts of a measurement, a line each in a file that only grows; without a file they are not kept."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.records: dict[str, Json] = {each["key"]: each for each in (read_lines(file) if file else [])}
        """By key; of two records with the same key the later one."""

    def keep(self, key: str, record: Mapping[str, Any]) -> Json:
        """Append a part; the key says all that it depends on."""
        found = {"key": key, **record}
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            append_line(self.file, found)
        self.records[key] = found
        return found

    def once(self, key: str, make: Callable[[], Mapping[str, Any]]) -> Json:
        """A part as it was kept, or else as it is made now."""
        return self.records.get(key) or self.keep(key, make())


def times_to(arms: Mapping[str, Sequence[Run]], target: float) -> dict[str, list[Time]]:
    """Arm -> time of each seed's first evaluation with at least the accuracy `target`.

    Example:
        >>> times_to({"a": [[(0, 0.1), (2, 0.5)], [(0, 0.1), (3, 0.4)]]}, 0.5)
        {'a': [(2, True), (3, False)]}
    """
    found = {arm: [[s for s, accuracy in run if accuracy >= target] for run in runs] for arm, runs in arms.items()}
    return {
        arm: [(at[0], True) if at else (run[-1][0], False) for at, run in zip(found[arm], runs, strict=True)]
        for arm, runs in arms.items()
    }


def sooner(arms: Mapping[str, Sequence[Run]], target: float, arm: str) -> dict[str, Json]:
    """Each other arm -> how many times sooner than it `arm` has the accuracy, as `speedup` gives it."""
    times = times_to(arms, target)
    gap = max(after - before for runs in arms.values() for run in runs for (before, _), (after, _) in pairwise(run))
    growth = 1 + gap / statistics.median(seconds for seconds, _ in times[arm])
    return {other: speedup(own, times[arm], growth) for other, own in times.items() if other != arm}


def times_text(times: Sequence[float | None]) -> str:
    """Whole seconds, seed by seed; a dash for a seed that did not reach the accuracy.

    Example:
        >>> times_text([12.4, None])
        '12, –'
    """
    return ", ".join("–" if seconds is None else f"{seconds:.0f}" for seconds in times)


def speedup(base: Sequence[Time], arm: Sequence[Time], growth: float) -> Json:
    """Seconds of the baseline over those of the arm, paired by seed: geometric mean and 95 % interval.

    The interval is Student's t on the log of the ratios. Its standard error also holds the gap between two
    evaluations, a factor of `growth`. Where runs did not reach the accuracy, their seconds are too few: "bound" is "≥"
    where these are runs of the baseline alone (the upper end is then infinite), "≤" where they are the arm's alone (the
    lower end is 0), and "?" where both have such runs (nothing is known).

    Example:
        >>> speedup([(8.0, True), (8.0, True)], [(4.0, True), (4.0, True)], 1.0)["ratio"]
        2.0
        >>> speedup([(8.0, False)], [(4.0, True)], 1.0)["bound"]
        '≥'
    """
    logs = [math.log(theirs / own) for (theirs, _), (own, _) in zip(base, arm, strict=True)]
    missed = (not all(is_reached for _, is_reached in base), not all(is_reached for _, is_reached in arm))
    bound = {(False, False): "", (True, False): "≥", (False, True): "≤", (True, True): "?"}[missed]
    ratio, low, high = math.exp(statistics.mean(logs)), 0.0, math.inf
    if len(logs) > 1:
        gap = math.log(growth) / math.sqrt(12)  # standard deviation of a time anywhere between two evaluations
        error = math.hypot(statistics.stdev(logs) / math.sqrt(len(logs)), gap, gap)
        factor = math.exp(min(student_t(len(logs) - 1) * error, 700.0))  # beyond, a float overflows
        low, high = ratio / factor, ratio * factor
    interval = SpeedupInterval(
        point=None if bound == "?" else ratio,
        low=0.0 if missed[1] else low,
        high=math.inf if missed[0] else high,
        share_unreached=statistics.mean(not is_reached for _, is_reached in arm),
    )
    ratios = [round(math.exp(each), 4) for each in logs]
    return {"ratio": interval.point, "bound": bound, "interval": interval.to_json(), "ratios": ratios}


def over_text(found: Json, more: str = "") -> str:
    """A speed-up of `speedup` with its interval, and `more` behind it."""
    if found["ratio"] is None:
        return "neither reaches it"
    inner = "one seed" if len(found["ratios"]) == 1 else SpeedupInterval.from_json(found["interval"]).range_text + more
    return f"{found['bound']} {found['ratio']:.2f}× ({inner})".strip()
