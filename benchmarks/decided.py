"""Comparisons whose arms, seeds and size were decided beforehand: an arm's cost over another's, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.paired import Json, over_text, speedup
from benchmarks.runs import MARKS, cost, time_of

WORTH_KNOWING = 1.25
"""The smallest factor worth knowing."""
NUM_DECIDE = 12
"""Seeds that a verdict takes."""


def turned(names: Sequence[str], k: int) -> list[str]:
    """The names, another one first for each k: no arm is always the first of its seed.

    Example:
        >>> turned(["a", "b", "c"], 4)
        ['b', 'c', 'a']
    """
    k %= len(names)
    return [*names[k:], *names[:k]]


def times_over(
    arm: Mapping[int, Json], base: Mapping[int, Json], targets: Iterable[float], clocks: Iterable[str]
) -> Json:
    """Target -> clock -> the arm's cost over the base's on the seeds of both; empty: there are none.

    Args:
        arm: seed -> its record.
        base: likewise.
        targets: accuracies.
        clocks: what is counted, as `runs.spent` has it.
    """
    seeds, clocks = sorted(arm.keys() & base.keys()), tuple(clocks)

    def over(target: float, clock: str) -> Json:
        own, theirs = ([time_of(records[seed], target, clock) for seed in seeds] for records in (arm, base))
        return speedup(own, theirs, MARKS.growth)

    return {f"{target:g}": {clock: over(target, clock) for clock in clocks} for target in targets if seeds}


def verdict(found: Json) -> str:
    """What the interval of a cost over another one says, in words.

    Example:
        >>> def of(low, high, num=12):
        ...     return verdict({"ratios": [1.0] * num, "interval": {"low": low, "high": high}})
        >>> of(1.1, 1.5), of(1.01, 1.2), of(0.9, 1.1), of(0.7, 1.1), of(0.5, None), of(0.5, 0.7)
        ('dearer', 'dearer, by less than 1.25×', 'equal to within 1.25×', 'open', 'open', 'cheaper')
        >>> of(1.1, 1.5, 3)
        'none: 3 of 12 seeds'
    """
    low, high = found["interval"]["low"], found["interval"]["high"]
    if (num := len(found["ratios"])) < NUM_DECIDE:
        return f"none: {num} of {NUM_DECIDE} seeds"
    is_small = high is not None and low > 1 / WORTH_KNOWING and high < WORTH_KNOWING
    if low > 1 or (high is not None and high < 1):
        return ("dearer" if low > 1 else "cheaper") + f", by less than {WORTH_KNOWING:g}×" * is_small
    return f"equal to within {WORTH_KNOWING:g}×" if is_small else "open"


def compared(
    made: Mapping[str, Mapping[int, Json]], lines: Iterable[tuple[str, str]], accuracy: float, clocks: Iterable[str]
) -> Json:
    """What an accuracy cost each arm by seed, and of each line how many times the second arm's cost the first one's is.

    Args:
        made: arm -> seed -> its record.
        lines: two arms each.
        accuracy: the target.
        clocks: what is counted; a verdict goes by CPU seconds.
    """
    clocks, to = tuple(clocks), f"{accuracy:g}"
    return {
        "arms": {
            name: {
                "rate": next(iter(own.values()))["rate"],
                "seeds": sorted(own),
                "to": {clock: [cost(own[seed], accuracy, clock) for seed in sorted(own)] for clock in clocks},
            }
            for name, own in made.items()
            if own
        },
        "lines": [
            {"arm": arm, "over": base, **times[to]}
            for arm, base in lines
            if (times := times_over(made[arm], made[base], [accuracy], clocks))
        ],
    }


def line_cells(line: Json, clocks: Iterable[str]) -> list[str]:
    """A line's arms, its ratio by every clock, the number of seeds, and the verdict."""
    seconds = line["cpu_seconds"]
    ratios = [over_text(line[clock]) for clock in clocks]
    return [line["arm"], line["over"], *ratios, str(len(seconds["ratios"])), verdict(seconds)]


def median_text(arm: Json | None) -> str:
    """Median seconds and steps of the runs that got there, their number where not all did, and the rate."""
    if not arm:
        return "–"
    seconds, steps = ([each for each in arm["to"][clock] if each is not None] for clock in ("cpu_seconds", "step"))
    if not seconds:
        return f"never, at {arm['rate']:g}"
    few = f" ({len(seconds)} of {len(arm['seeds'])})" if len(seconds) < len(arm["seeds"]) else ""
    return f"{statistics.median(seconds):.1f} s, {statistics.median(steps):.0f} steps, at {arm['rate']:g}{few}"
