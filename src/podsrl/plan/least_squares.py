"""Least squares with coefficients that are never negative, for a handful of columns: seconds per count."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

OUTLIER = 3.0
"""Points further than this many robust standard deviations from the first fit do not count in the second."""


def fit_nonnegative(columns: npt.ArrayLike, values: npt.ArrayLike) -> Array:
    """Coefficients [K] ≥ 0 with the least sum of squared *relative* errors; then once more without the outliers.

    Relative, because a step of 20 ms is to be predicted as well as one of 2 s. Outliers, because other processes
    disturb a measurement now and then, and always upwards.

    Args:
        columns: [N, K] counts ≥ 0, K at most 6.
        values: [N] measured, above 0.

    Raises:
        ValueError: no points, or a value that is not above 0.

    Example:
        >>> fit_nonnegative([[1, 1], [1, 2], [1, 4]], [3, 5, 9]).round(6).tolist()
        [1.0, 2.0]
    """
    x, y = np.asarray(columns, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or len(x) == 0 or len(x) != len(y) or not (y > 0).all():
        raise ValueError(f"columns of shape {x.shape} for {y.shape} values; want [N, K] and [N] above 0")
    first = _nonnegative(x / y[:, None])
    residuals = x @ first / y - 1
    spread = 1.4826 * float(np.median(np.abs(residuals - np.median(residuals))))
    is_usual = np.abs(residuals - np.median(residuals)) <= max(OUTLIER * spread, 1e-9)
    if is_usual.all() or is_usual.sum() <= x.shape[1]:
        return first
    return _nonnegative((x / y[:, None])[is_usual])


def _nonnegative(relative: Array) -> Array:
    """Minimise |relative @ c - 1| over c ≥ 0, by plain least squares on fewer and fewer columns.

    The column of the most negative coefficient is dropped until there is none. Where columns cannot be told apart, as
    after measurements at one size, the last goes.
    """
    scale = np.abs(relative).max(axis=0)
    scale[scale == 0] = 1.0
    found, kept = np.zeros(len(scale)), np.flatnonzero(relative.any(axis=0))
    while len(kept):
        solved, _, rank, _ = np.linalg.lstsq(relative[:, kept] / scale[kept], np.ones(len(relative)), rcond=None)
        if rank == len(kept) and (solved >= 0).all():
            found[kept] = solved / scale[kept]
            break
        kept = np.delete(kept, solved.argmin() if rank == len(kept) else -1)
    return found


def power_law(x: npt.ArrayLike, y: npt.ArrayLike, at: float) -> float:
    """Straight lines in log-log scale through the points (medians where an x comes often); outside, the nearest slope.

    With one x only, y is taken as proportional to x.

    Example:
        >>> round(power_law([1, 4], [10, 20], 16), 6)
        40.0
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    known = np.unique(xs)
    medians = np.array([np.median(ys[xs == value]) for value in known])
    if len(known) == 1:
        return float(medians[0] * at / known[0])
    left = int(np.clip(np.searchsorted(known, at) - 1, 0, len(known) - 2))
    (x0, x1), (y0, y1) = np.log(known[left : left + 2]), np.log(medians[left : left + 2])
    return float(np.exp(y0 + (y1 - y0) * (np.log(at) - x0) / (x1 - x0)))
