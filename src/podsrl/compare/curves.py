"""Evaluation curves of runs: checked, laid on common times, averaged over seeds.

A curve is training seconds (evaluation excluded) against accuracy. Nothing is interpolated: an accuracy counts from the
time of its evaluation on. This module needs numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from podsrl.errors import UsageError

Array = npt.NDArray[np.float64]
Curve = tuple[npt.ArrayLike, npt.ArrayLike]
"""Times and accuracies of one run's evaluations, equally long."""


def common_grid(curves: Sequence[Curve]) -> Array:
    """Every time at which any run was evaluated, from when all have been evaluated after training began.

    A mean over these runs at these times reads no accuracy before it was measured and holds no untrained model. Runs of
    one arm share a grid; each arm has its own, so that no arm waits for another's first evaluation.

    Returns:
        [G] float64 times above 0, strictly increasing.

    Raises:
        UsageError: no run, a malformed curve, or a run without an evaluation after time 0.

    Example:
        >>> common_grid([([0, 2, 4], [0, 0, 0]), ([0, 3, 5], [0, 0, 0])]).tolist()
        [3.0, 4.0, 5.0]
    """
    trained = [trained_part(*curve)[0] for curve in checked_curves(curves)]
    times: Array = np.unique(np.concatenate(trained))
    from_all: Array = times[times >= max(run[0] for run in trained)]
    return from_all


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
    points = _checked_increasing(grid, "grid")
    return np.stack([_held(*curve, points, run) for run, curve in enumerate(checked_curves(curves))])


def mean_curve(curves: Sequence[Curve], grid: npt.ArrayLike) -> Array:
    """Average S runs on one grid of G times: [G] float64 mean accuracies (see `curves_on_grid`).

    Example:
        >>> mean_curve([([0, 10], [0.0, 0.4]), ([0, 12], [0.2, 0.8])], [0, 10, 12]).round(2).tolist()
        [0.1, 0.3, 0.6]
    """
    return np.asarray(curves_on_grid(curves, grid).mean(axis=0))


def trained_part(times: Array, accuracies: Array) -> tuple[Array, Array]:
    """A checked curve without its evaluation at time 0, which is of the untrained model."""
    start = int(times[0] == 0)
    if times.size == start:
        raise UsageError("the only evaluation is at time 0, before training; give at least one later checkpoint")
    return times[start:], accuracies[start:]


def checked_curves(curves: Sequence[Curve], name: str = "curves") -> list[tuple[Array, Array]]:
    """Every curve as float64 arrays; a UsageError where there is none or one is malformed."""
    if len(curves) == 0:
        raise UsageError(f"{name} is empty; give at least one run of (times, accuracies)")
    return [checked_curve(*curve, f"{name}[{run}] ") for run, curve in enumerate(curves)]


def checked_curve(times: npt.ArrayLike, accuracies: npt.ArrayLike, prefix: str) -> tuple[Array, Array]:
    """One curve as float64 arrays; a UsageError names the malformed one with `prefix`."""
    checked_times = _checked_increasing(times, f"{prefix}times")
    checked_accuracies = _checked_numbers(accuracies, f"{prefix}accuracies")
    if checked_times.size != checked_accuracies.size:
        raise UsageError(
            f"{prefix}times has {checked_times.size} values and {prefix}accuracies has {checked_accuracies.size}; "
            f"give one accuracy per time"
        )
    return checked_times, checked_accuracies


def check_fraction(fraction: float) -> None:
    """A UsageError for a fraction of the baseline's best accuracy that sets no target."""
    if not 0 < fraction <= 1:
        raise UsageError(f"fraction = {fraction}; give a number above 0 and at most 1, for example 0.99")


def _held(times: Array, accuracies: Array, grid: Array, run: int) -> Array:
    last = np.searchsorted(times, grid, side="right") - 1
    if last[0] < 0:
        raise UsageError(
            f"curves[{run}] was first evaluated at {times[0]:g}, after the first grid time {grid[0]:g}; "
            f"start the grid there or evaluate before the first step"
        )
    return accuracies[last]


def _checked_increasing(values: npt.ArrayLike, name: str) -> Array:
    times = _checked_numbers(values, name)
    if (np.diff(times) <= 0).any():
        at = int((np.diff(times) <= 0).argmax())
        raise UsageError(
            f"{name} must increase strictly, but value {at + 1} is {times[at + 1]:g} after {times[at]:g}; "
            f"sort the evaluations by time and keep one per time"
        )
    return times


def _checked_numbers(values: npt.ArrayLike, name: str) -> Array:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is not a list of numbers ({error}); give one number per evaluation") from error
    if numbers.ndim != 1 or numbers.size == 0:
        raise UsageError(f"{name} has shape {numbers.shape}; give a flat list with at least one number")
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        at = int((~(np.isfinite(numbers) & (numbers >= 0))).argmax())
        raise UsageError(f"{name} must be finite and at least 0, but value {at} is {numbers[at]}; drop or repair it")
    return numbers
