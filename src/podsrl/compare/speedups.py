"""How much sooner one way of training reaches an accuracy than another, as the PODS paper measures it.

Source: arXiv 2504.13818 (speed-up at 99 % of the baseline's best mean accuracy). Needs numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from podsrl.compare.curves import (
    Array,
    Curve,
    check_fraction,
    checked_curve,
    common_grid,
    mean_curve,
    trained_part,
)
from podsrl.errors import UsageError

ACCURACIES = (0.5, 0.8, 0.9, 0.95)
"""Fixed ones, beside the target, which depends on the baseline's best."""


def time_to_accuracy(times: npt.ArrayLike, accuracies: npt.ArrayLike, target: float) -> float | None:
    """The time of the first evaluation at or above `target`; nothing is interpolated.

    Args:
        times: [E] strictly increasing, at least 0, any unit.
        accuracies: [E] at least 0, in the unit of `target`.

    Returns:
        A member of `times`, or None where no evaluation reaches the target.

    Raises:
        UsageError: empty, unequally long, not finite, negative or not increasing.

    Example:
        >>> time_to_accuracy([10, 20, 30], [0.2, 0.6, 0.5], 0.5)
        20.0
    """
    checked_times, checked_accuracies = checked_curve(times, accuracies, "")
    if not np.isfinite(target):
        raise UsageError(f"target is {target}; give a finite accuracy, for example 0.8")
    return _first_at_or_above(checked_times, checked_accuracies, target)


def times_to_accuracies(curves: Mapping[str, Sequence[Curve]]) -> dict[str, dict[str, float | None]]:
    """Each of `ACCURACIES`, as text, -> arm -> when its mean curve over seeds first has it; None: never.

    Example:
        >>> times_to_accuracies({"a": [([0, 10, 20], [0, 0.5, 0.7]), ([0, 10, 20], [0, 0.7, 0.95])]})
        {'0.5': {'a': 10.0}, '0.8': {'a': 20.0}, '0.9': {'a': None}, '0.95': {'a': None}}
    """
    grids = {arm: common_grid(runs) for arm, runs in curves.items()}
    means = {arm: mean_curve(runs, grids[arm]) for arm, runs in curves.items()}
    return {
        f"{accuracy:g}": {arm: time_to_accuracy(grids[arm], means[arm], accuracy) for arm in curves}
        for accuracy in ACCURACIES
    }


def speedup(
    base_times: npt.ArrayLike,
    base_accuracies: npt.ArrayLike,
    times: npt.ArrayLike,
    accuracies: npt.ArrayLike,
    fraction: float = 0.99,
) -> float | None:
    """Divide the baseline's time to `fraction` of its own best accuracy by the other arm's time to the same accuracy.

    Both are mean curves over seeds, each on its own checkpoints. The evaluation at time 0
    is ignored, since it is the untrained model: it cannot be the best and cannot reach the target.

    Args:
        base_times, base_accuracies: [E] the baseline's checkpoints, strictly increasing, and its mean accuracies.
        times, accuracies: [F] the other arm's, in the same units.
        fraction: of the baseline's best mean accuracy, above 0 and at most 1.

    Returns:
        The ratio; above 1 the other arm is sooner. None where the other arm never reaches the target, or the baseline
        is never above 0 and so sets none.

    Raises:
        UsageError: a malformed curve, no evaluation after time 0, or a fraction out of range.

    Source: arXiv 2504.13818.

    Example:
        >>> speedup([1, 2, 3], [0.5, 0.7, 0.8], [1, 2, 3], [0.6, 0.8, 0.9])
        1.5
    """
    check_fraction(fraction)
    base = trained_part(*checked_curve(base_times, base_accuracies, "base_"))
    other = trained_part(*checked_curve(times, accuracies, ""))
    target = fraction * base[1].max()
    base_time, other_time = _first_at_or_above(*base, target), _first_at_or_above(*other, target)
    if target == 0 or base_time is None or other_time is None:
        return None
    return base_time / other_time


def _first_at_or_above(times: Array, accuracies: Array, target: float) -> float | None:
    reached = np.flatnonzero(accuracies >= target)
    return float(times[reached[0]]) if reached.size else None
