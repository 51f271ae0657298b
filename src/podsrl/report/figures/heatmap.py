"""A table of speed-ups as colours around 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from podsrl.compare.interval import range_text
from podsrl.errors import UsageError
from podsrl.report.figures import theme

Array = npt.NDArray[np.float64]
Interval = tuple[float, float]

_MISSING = "–"


def speedup_heatmap(
    matrix: npt.ArrayLike,
    row_labels: Sequence[str],
    col_labels: Sequence[str],
    intervals: Sequence[Sequence[Interval | None]] | None = None,
    *,
    title: str = "Speed-up over the baseline",
) -> Figure:
    """Draw speed-ups as colours: blue sooner, red later, white at 1; equal factors get equal distance (log scale).

    Args:
        matrix: [R, C] ratios above 0; NaN or None where the target was never reached, drawn as a dash without colour.
        intervals: [R][C] (low, high) written under the value, None for none.

    Raises:
        UsageError: shapes that do not fit, or a ratio that is not above 0.

    Example:
        >>> figure = speedup_heatmap([[1.0, 2.0]], ["m = 16"], ["n = 16", "n = 64"])
        >>> figure.axes[0].get_title(loc="left")
        'Speed-up over the baseline'
    """
    ratios = _checked(matrix, row_labels, col_labels)
    if (ratios <= 0).any():
        raise UsageError(f"matrix holds the speed-up {np.nanmin(ratios):g}; give ratios above 0, NaN for not reached")
    logs = np.log2(ratios)
    # At least a factor of two each way, so that a table of near-ones does not shout.
    reach = max(1.0, float(np.nanmax(np.abs(logs), initial=0.0)))
    colors = np.array(colormaps["RdBu"](Normalize(-reach, reach)(np.nan_to_num(logs))), dtype=np.float64)
    colors[~np.isfinite(logs)] = 0.0  # transparent
    texts = [[f"{ratio:.2f}×" if np.isfinite(ratio) else _MISSING for ratio in row] for row in ratios]
    return _draw(colors, texts, _interval_notes(intervals, ratios.shape), (row_labels, col_labels), title)


def _checked(matrix: npt.ArrayLike, row_labels: Sequence[str], col_labels: Sequence[str]) -> Array:
    values = np.array(matrix, dtype=np.float64)
    wanted = (len(row_labels), len(col_labels))
    if values.shape != wanted or values.size == 0:
        raise UsageError(f"matrix has shape {values.shape}, the labels want {wanted}, at least one row and one column")
    return values


def _interval_notes(intervals: Sequence[Sequence[Interval | None]] | None, shape: tuple[int, ...]) -> list[list[str]]:
    if intervals is None:
        return [[""] * shape[1] for _ in range(shape[0])]
    if len(intervals) != shape[0] or any(len(row) != shape[1] for row in intervals):
        raise UsageError(f"intervals do not fit the matrix of shape {shape}; give one (low, high) or None per cell")
    return [["" if pair is None else range_text(*pair) for pair in row] for row in intervals]


def _draw(
    colors: Array,
    texts: Sequence[Sequence[str]],
    notes: Sequence[Sequence[str]],
    labels: tuple[Sequence[str], Sequence[str]],
    title: str,
) -> Figure:
    rows, cols = colors.shape[:2]
    figure = theme.new_figure(1.8 + 1.15 * cols, 1.2 + 0.72 * rows)
    axes = figure.subplots()
    axes.imshow(colors, aspect="auto", interpolation="nearest")
    theme.style(axes, title)
    axes.grid(visible=False)
    axes.tick_params(length=0, labelcolor=theme.INK)
    axes.set_yticks(range(rows), [theme.plain(label) for label in labels[0]])
    axes.set_xticks(range(cols), [theme.plain(label) for label in labels[1]])
    axes.spines["bottom"].set_visible(False)
    for row, col in np.ndindex(rows, cols):
        _write_cell(axes, row, col, texts[row][col], notes[row][col], _readable_on(colors[row, col]))
    return figure


def _write_cell(axes: Axes, row: int, col: int, text: str, note: str, color: str) -> None:
    shift = 0.14 if note else 0.0
    axes.text(col, row - shift, text, ha="center", va="center", fontsize=11, color=color, weight="bold")
    if note:
        axes.text(col, row + 0.2, note, ha="center", va="center", fontsize=8, color=color)


def _readable_on(rgba: Array) -> str:
    """Dark text on light cells, white on dark ones, by relative luminance; quiet text where there is no cell."""
    if rgba[3] == 0:
        return theme.MUTED
    luminance = float(np.dot(rgba[:3], (0.2126, 0.7152, 0.0722)))
    return theme.ON_BAR if luminance > 0.45 else theme.PAPER
