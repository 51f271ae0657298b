"""Comparisons whose arms, seeds and size were decided beforehand: an arm's cost over another's, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.paired import Json, speedup
from benchmarks.runs import MARKS, time_of

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
