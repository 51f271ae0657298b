"""How far a measured speed-up can be trusted: a 95 % interval over paired seeds, valid for few seeds.

`python -m benchmarks interval-coverage` measures how often the interval holds the truth; docs/measurements.md has
the table. This module needs numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from podsrl.compare.curves import (
    Array,
    Curve,
    check_fraction,
    checked_curves,
    common_grid,
    curves_on_grid,
    trained_part,
)
from podsrl.compare.interval import SpeedupInterval
from podsrl.compare.student import student_t
from podsrl.errors import UsageError

BoolArray = npt.NDArray[np.bool_]

_MAX_UNREACHED = 0.025
"""Share of resamples that may miss the target before the interval's low end is 0."""


def bootstrap_speedup(
    base_curves: Sequence[Curve],
    curves: Sequence[Curve],
    *,
    fraction: float = 0.99,
    num_resamples: int = 2000,
    seed: int = 0,
) -> SpeedupInterval:
    """Measure the speed-up of the mean curves, and a 95 % interval over seeds.

    Run i of both arms has the same seed, so seeds are drawn jointly, with replacement. On the log scale the interval is
    point ± Student's t for S - 1 degrees × the standard error. The error's square is the sum of two parts: the variance
    of the resampled log ratios × S / (S - 1), since draws of S from S seeds vary too little; and for each arm the
    variance of a time that is known only up to the gap between two evaluations.

    Where the arm never reaches the target, its last evaluation stands for its time, so the speed-up is at most that,
    and the low end is 0. It is also 0 where more than 2.5 % of the resamples never reach the target, and where at no
    time the arm's accuracy is above the target by a one-sided 95 % t test over seeds. One seed says nothing about
    others: its interval is 0 to infinity.

    Args:
        base_curves: S runs of the baseline, (times, accuracies), each with an evaluation after time 0.
        curves: S runs of the other arm, in the same order of seeds.
        fraction: of the baseline's best mean accuracy, above 0 and at most 1.


    Raises:
        UsageError: malformed curves, unequal numbers of runs, a number out of range.

    Example:
        >>> base, other = ([0, 10, 20], [0.1, 0.4, 0.8]), ([0, 10, 20], [0.1, 0.8, 0.9])
        >>> bootstrap_speedup([base] * 5, [other] * 5).text
        '2.00× (0.82–4.90)'
    """
    _check_bootstrap(len(base_curves), len(curves), num_resamples, fraction)
    base, other = _arm(base_curves, "base_curves"), _arm(curves, "curves")
    base_means, other_means = (arm.accuracies.mean(axis=0, keepdims=True) for arm in (base, other))
    (base_time,), (other_time,), (is_reached,) = _crossings(base, other, base_means, other_means, fraction)
    weights = _resampled_weights(len(curves), num_resamples, seed)
    drawn = _crossings(base, other, weights @ base.accuracies, weights @ other.accuracies, fraction)
    share_unreached = float((~drawn[2]).mean())
    error = math.hypot(
        _standard_error(np.log(drawn[0] / drawn[1]), len(curves)),
        _resolution(base, base_time),
        _resolution(other, other_time),
    )
    ratio = float(base_time / other_time)
    low, high = _ends(ratio, error, len(curves))
    is_sure = is_reached and share_unreached <= _MAX_UNREACHED and low > 0 and _is_above_target(base, other, fraction)
    low = low if is_sure else 0.0
    return SpeedupInterval(point=ratio if is_reached else None, low=low, high=high, share_unreached=share_unreached)


def bootstrap_speedups(
    curves: Mapping[str, Sequence[Curve]], baseline: str, fraction: float
) -> dict[str, SpeedupInterval]:
    """Every arm's `bootstrap_speedup` over the baseline, whose own is exactly 1; run i of all arms has one seed."""
    base = curves[baseline]
    found = {arm: bootstrap_speedup(base, runs, fraction=fraction) for arm, runs in curves.items()}
    if found[baseline].point is not None:
        found[baseline] = replace(found[baseline], low=1.0, high=1.0)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arm:
    """One arm's runs on their common times."""

    run_times: tuple[Array, ...]
    """By run, its own evaluations after time 0."""
    times: Array
    """[G]"""
    accuracies: Array
    """[S, G]"""


def _arm(curves: Sequence[Curve], name: str) -> _Arm:
    checked = checked_curves(curves, name)
    times = common_grid(checked)
    run_times = tuple(trained_part(*curve)[0] for curve in checked)
    return _Arm(run_times=run_times, times=times, accuracies=curves_on_grid(checked, times))


def _crossings(
    base: _Arm, other: _Arm, base_means: Array, other_means: Array, fraction: float
) -> tuple[Array, Array, BoolArray]:
    """Times [R] of both arms to the target of each row of mean curves, and whether the other arm reaches it.

    Where it does not, its last evaluation stands for its time. A baseline that is never above 0 sets no target: its
    time is infinite, and no arm reaches it.
    """
    best = base_means.max(axis=1, keepdims=True)
    at_target = other_means >= fraction * best
    reached = at_target.any(axis=1) & (best[:, 0] > 0)
    base_times = base.times[(base_means >= fraction * best).argmax(axis=1)]
    other_times = np.where(reached, other.times[at_target.argmax(axis=1)], other.times[-1])
    return np.where(best[:, 0] > 0, base_times, np.inf), other_times, reached


def _standard_error(log_ratios: Array, num_seeds: int) -> float:
    """Standard error of the log speed-up over seeds, from its resamples; infinite where it cannot be known."""
    if num_seeds == 1 or not np.isfinite(log_ratios).all():
        return math.inf
    return float(log_ratios.std()) * math.sqrt(num_seeds / (num_seeds - 1))


def _resolution(arm: _Arm, time: float) -> float:
    """Standard deviation of the log of a crossing time that lies anywhere between two evaluations, `time` the later."""
    ends = [min(int(np.searchsorted(times, time)), times.size - 1) for times in arm.run_times]
    gaps = [np.diff(times, prepend=0.0)[end] for times, end in zip(arm.run_times, ends, strict=True)]
    return float(np.mean(gaps)) / time / math.sqrt(12)


def _is_above_target(base: _Arm, other: _Arm, fraction: float) -> bool:
    """Whether the other arm's accuracy is above the target at some time, by a one-sided 95 % t test over seeds."""
    best = int(base.accuracies.mean(axis=0).argmax())
    above = other.accuracies - fraction * base.accuracies[:, [best]]
    num_seeds = above.shape[0]
    half = student_t(num_seeds - 1, 0.95) * above.std(axis=0, ddof=1) / math.sqrt(num_seeds)
    return bool((above.mean(axis=0) >= half).any())


def _ends(ratio: float, error: float, num_seeds: int) -> tuple[float, float]:
    """Both ends of the t interval on the log scale."""
    if not math.isfinite(error):
        return 0.0, math.inf
    factor = math.exp(min(student_t(num_seeds - 1) * error, 700.0))  # beyond, a float overflows
    return ratio / factor, ratio * factor


def _resampled_weights(num_seeds: int, num_resamples: int, seed: int) -> Array:
    """[R, S] share of each seed in each resample; rows sum to 1."""
    drawn = np.random.default_rng(seed).integers(0, num_seeds, size=(num_resamples, num_seeds))
    cells = drawn + num_seeds * np.arange(num_resamples)[:, None]
    counts = np.bincount(cells.ravel(), minlength=num_resamples * num_seeds)
    return counts.reshape(num_resamples, num_seeds) / num_seeds


def _check_bootstrap(num_base: int, num_other: int, num_resamples: int, fraction: float) -> None:
    check_fraction(fraction)
    if num_base != num_other:
        raise UsageError(f"base_curves has {num_base} runs and curves has {num_other}; give both arms the same seeds")
    if num_resamples < 1:
        raise UsageError(f"num_resamples = {num_resamples}; draw at least 1, for example 2000")
