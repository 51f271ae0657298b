"""How much sooner one way of training reaches an accuracy than another, as the PODS paper measures it.

In: evaluation curves, training seconds (evaluation excluded) against accuracy. Out: times, ratios, an interval.
Left out on purpose: interpolation. An accuracy counts from when it was measured, never from between checkpoints.
Source: arXiv 2504.13818 (speed-up at 99 % of the baseline's best mean accuracy). Needs numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podsrl.errors import UsageError

Array = npt.NDArray[np.float64]
Curve = tuple[npt.ArrayLike, npt.ArrayLike]
"""Times and accuracies of one run's evaluations, equally long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupInterval:
    """A speed-up with its 95 % bootstrap interval over seeds."""

    point: float | None
    """Of the mean curves over all seeds; None where the target is never reached."""
    low: float
    """2.5th percentile; a resample that never reaches the target counts as 0."""
    high: float
    """97.5th percentile, likewise."""
    share_unreached: float
    """Share of resamples that never reach the target, 0 to 1."""


def time_to_accuracy(times: npt.ArrayLike, accuracies: npt.ArrayLike, target: float) -> float | None:
    """Return the time of the first evaluation at or above `target`; nothing is interpolated.

    Args:
        times: [E] strictly increasing, at least 0, any unit.
        accuracies: [E] at least 0.
        target: the accuracy to reach, in the unit of `accuracies`.

    Returns:
        A member of `times`, or None where no evaluation reaches the target.

    Raises:
        UsageError: empty, unequally long, not finite, negative or not increasing.

    Example:
        >>> time_to_accuracy([10, 20, 30], [0.2, 0.6, 0.5], 0.5)
        20.0
    """
    checked_times, checked_accuracies = _checked_curve(times, accuracies, "")
    if not np.isfinite(target):
        raise UsageError(f"target is {target}; give a finite accuracy, for example 0.8")
    return _first_at_or_above(checked_times, checked_accuracies, target)


def speedup(
    base_times: npt.ArrayLike,
    base_accuracies: npt.ArrayLike,
    times: npt.ArrayLike,
    accuracies: npt.ArrayLike,
    fraction: float = 0.99,
) -> float | None:
    """Divide the baseline's time to `fraction` of its own best accuracy by the other arm's time to the same accuracy.

    Both are mean curves over seeds, each on its own checkpoints. An evaluation at time 0 is the untrained model:
    it is no checkpoint and counts neither for the best accuracy nor as reaching it.

    Args:
        base_times: [E] the baseline's checkpoints, strictly increasing, at least 0.
        base_accuracies: [E] its mean accuracies, at least 0.
        times: [F] the other arm's checkpoints, in the same unit.
        accuracies: [F] its mean accuracies.
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
    _check_fraction(fraction)
    base = _trained_part(*_checked_curve(base_times, base_accuracies, "base_"))
    other = _trained_part(*_checked_curve(times, accuracies, ""))
    target = fraction * base[1].max()
    base_time, other_time = _first_at_or_above(*base, target), _first_at_or_above(*other, target)
    if target == 0 or base_time is None or other_time is None:
        return None
    return base_time / other_time


def curves_on_grid(curves: Sequence[Curve], grid: npt.ArrayLike) -> Array:
    """Put runs that were evaluated at different times on one time grid.

    At grid time t a run counts with its last evaluation at or before t: it gets credit for an accuracy only once it was
    measured, and after its last evaluation it keeps that accuracy. The evaluation before the first step gives time 0.

    Args:
        curves: S runs of (times, accuracies), each with its first evaluation no later than the first grid time.
        grid: [G] strictly increasing, at least 0, in the unit of the times.

    Returns:
        [S, G] float64 accuracies.

    Raises:
        UsageError: no run, a malformed curve or grid, or a run that was not yet evaluated at the first grid time.

    Example:
        >>> curves_on_grid([([0, 10, 20], [0.1, 0.5, 0.7])], [0, 9, 10, 30]).tolist()
        [[0.1, 0.1, 0.5, 0.7]]
    """
    if len(curves) == 0:
        raise UsageError("curves is empty; give at least one run of (times, accuracies)")
    points = _checked_increasing(grid, "grid")
    return np.stack([_held(*_checked_curve(*curve, f"curves[{i}] "), points, i) for i, curve in enumerate(curves)])


def mean_curve(curves: Sequence[Curve], grid: npt.ArrayLike) -> Array:
    """Average runs on one time grid; between its evaluations a run holds its last one (see `curves_on_grid`).

    Args:
        curves: S runs of (times, accuracies).
        grid: [G] strictly increasing times.

    Returns:
        [G] float64 mean accuracies.

    Raises:
        UsageError: as `curves_on_grid`.

    Example:
        >>> mean_curve([([0, 10], [0.0, 0.4]), ([0, 12], [0.2, 0.8])], [0, 10, 12]).round(2).tolist()
        [0.1, 0.3, 0.6]
    """
    mean: Array = curves_on_grid(curves, grid).mean(axis=0)
    return mean


def bootstrap_speedup(
    base_curves: Sequence[Curve],
    curves: Sequence[Curve],
    *,
    grid: npt.ArrayLike,
    fraction: float = 0.99,
    num_resamples: int = 2000,
    seed: int = 0,
) -> SpeedupInterval:
    """Measure `speedup` on the mean curves, and how far it moves when seeds are drawn again with replacement.

    Run i of both arms has the same seed, so seeds are drawn jointly. A resample in which the other arm never reaches
    the target (or the baseline sets none) counts as a speed-up of 0, the honest lower end of the ratio. With one seed
    the interval is the point.

    Args:
        base_curves: S runs of the baseline, (times, accuracies).
        curves: S runs of the other arm, in the same order of seeds.
        grid: [G] common time grid, strictly increasing, at least one time above 0.
        fraction: of the baseline's best mean accuracy, above 0 and at most 1.
        num_resamples: draws of S seeds, at least 1.
        seed: of the draws.

    Returns:
        Point, 95 % percentile interval and the share of resamples that never reach the target.

    Raises:
        UsageError: malformed curves or grid, unequal numbers of runs, a number out of range.

    Example:
        >>> base, other = ([0, 10, 20], [0.1, 0.4, 0.8]), ([0, 10, 20], [0.1, 0.8, 0.9])
        >>> bootstrap_speedup([base, base], [other, other], grid=[0, 10, 20])
        SpeedupInterval(point=2.0, low=2.0, high=2.0, share_unreached=0.0)
    """
    _check_bootstrap(len(base_curves), len(curves), num_resamples, fraction)
    base, other = curves_on_grid(base_curves, grid), curves_on_grid(curves, grid)
    points = _checked_increasing(grid, "grid")
    point = speedup(points, base.mean(axis=0), points, other.mean(axis=0), fraction)
    weights = _resampled_weights(len(base_curves), num_resamples, seed)
    after_start = points > 0
    ratios = _ratios(weights @ base[:, after_start], weights @ other[:, after_start], points[after_start], fraction)
    low, high = np.percentile(np.nan_to_num(ratios, nan=0.0), (2.5, 97.5))
    return SpeedupInterval(
        point=point, low=float(low), high=float(high), share_unreached=float(np.isnan(ratios).mean())
    )


def _first_at_or_above(times: Array, accuracies: Array, target: float) -> float | None:
    reached = np.flatnonzero(accuracies >= target)
    return float(times[reached[0]]) if reached.size else None


def _trained_part(times: Array, accuracies: Array) -> tuple[Array, Array]:
    start = int(times[0] == 0)
    if times.size == start:
        raise UsageError("the only evaluation is at time 0, before training; give at least one later checkpoint")
    return times[start:], accuracies[start:]


def _held(times: Array, accuracies: Array, grid: Array, run: int) -> Array:
    last = np.searchsorted(times, grid, side="right") - 1
    if last[0] < 0:
        raise UsageError(
            f"curves[{run}] was first evaluated at {times[0]:g}, after the first grid time {grid[0]:g}; "
            f"start the grid there or evaluate before the first step"
        )
    return accuracies[last]


def _resampled_weights(num_seeds: int, num_resamples: int, seed: int) -> Array:
    """[R, S] share of each seed in each resample; rows sum to 1."""
    drawn = np.random.default_rng(seed).integers(0, num_seeds, size=(num_resamples, num_seeds))
    cells = drawn + num_seeds * np.arange(num_resamples)[:, None]
    counts = np.bincount(cells.ravel(), minlength=num_resamples * num_seeds)
    return counts.reshape(num_resamples, num_seeds) / num_seeds


def _ratios(base: Array, other: Array, grid: Array, fraction: float) -> Array:
    """Speed-up of each row of mean curves [R, G] on a grid above 0; NaN where there is none."""
    target = fraction * base.max(axis=1, keepdims=True)
    reached = other >= target
    has_ratio = reached.any(axis=1) & (target[:, 0] > 0)
    ratio: Array = grid[(base >= target).argmax(axis=1)] / grid[reached.argmax(axis=1)]
    return np.where(has_ratio, ratio, np.nan)


def _check_bootstrap(num_base: int, num_other: int, num_resamples: int, fraction: float) -> None:
    _check_fraction(fraction)
    if num_base != num_other:
        raise UsageError(f"base_curves has {num_base} runs and curves has {num_other}; give both arms the same seeds")
    if num_resamples < 1:
        raise UsageError(f"num_resamples = {num_resamples}; draw at least 1, for example 2000")


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise UsageError(f"fraction = {fraction}; give a number above 0 and at most 1, for example 0.99")


def _checked_curve(times: npt.ArrayLike, accuracies: npt.ArrayLike, prefix: str) -> tuple[Array, Array]:
    checked_times = _checked_increasing(times, f"{prefix}times")
    checked_accuracies = _checked_numbers(accuracies, f"{prefix}accuracies")
    if checked_times.size != checked_accuracies.size:
        raise UsageError(
            f"{prefix}times has {checked_times.size} values and {prefix}accuracies has {checked_accuracies.size}; "
            f"give one accuracy a time"
        )
    return checked_times, checked_accuracies


def _checked_increasing(values: npt.ArrayLike, name: str) -> Array:
    times = _checked_numbers(values, name)
    if (np.diff(times) <= 0).any():
        at = int((np.diff(times) <= 0).argmax())
        raise UsageError(
            f"{name} must increase strictly, but value {at + 1} is {times[at + 1]:g} after {times[at]:g}; "
            f"sort the evaluations by time and keep one a time"
        )
    return times


def _checked_numbers(values: npt.ArrayLike, name: str) -> Array:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is not a list of numbers ({error}); give one number an evaluation") from error
    if numbers.ndim != 1 or numbers.size == 0:
        raise UsageError(f"{name} has shape {numbers.shape}; give a flat list with at least one number")
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        at = int((~(np.isfinite(numbers) & (numbers >= 0))).argmax())
        raise UsageError(f"{name} must be finite and at least 0, but value {at} is {numbers[at]}; drop or repair it")
    return numbers
