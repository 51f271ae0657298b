"""Accuracy against training time, by arm: mean and band over seeds, the target, and when each arm reaches it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from podsrl.compare.curves import curves_on_grid
from podsrl.compare.speedups import time_to_accuracy
from podsrl.compare.student import student_t
from podsrl.errors import UsageError
from podsrl.report.comparison import Comparison
from podsrl.report.figures import theme
from podsrl.report.numbers import duration
from podsrl.report.read import Array

_X_LABELS = {
    "seconds": "training time, evaluation excluded",
    "cpu": "processor time of training, evaluation excluded",
}
_FAR_RIGHT = 0.88
"""From this share of the time axis on, a time is written left of its mark, so that it stays inside."""


def draw_accuracy(axes: Axes, comparison: Comparison) -> None:
    """Draw held-out accuracy against training time, by arm, into axes, which are styled too.

    Each arm is its mean over seeds, with the mean's 95 % interval (Student's t) as a band. The thin line is the target;
    the dot on it is the first grid time at which the arm's mean is there. There is neither where the baseline has not
    learned.

    Raises:
        UsageError: a malformed curve or grid.
    """
    grids, baseline = comparison.grid_seconds, comparison.baseline
    longest = max(float(grid[-1]) for grid in grids.values())
    if any(grid[-1] <= 0 for grid in grids.values()):
        raise UsageError("grid has no time above 0; give training seconds after the start too")
    colors = theme.arm_colors(list(comparison.runs), baseline)
    means = {
        arm: draw_arm(axes, curves_on_grid(curves, grids[arm]), grids[arm], colors[arm])
        for arm, curves in comparison.curves().items()
    }
    target = comparison.fraction * float(means[baseline][grids[baseline] > 0].max())
    title = f"Held-out accuracy{comparison.metric_note}"
    theme.style(axes, title, x_label=_X_LABELS[comparison.clock], subtitle=_subtitle(comparison))
    theme.percent_axis(axes)
    theme.time_axis(axes, longest)
    axes.set_xlim(0, longest)
    if not comparison.not_learned:
        _draw_target(axes, target, f"{comparison.fraction * 100:g} % of {baseline}'s best: {target * 100:.1f} %")
    crossings = {arm: time_to_accuracy(grid[grid > 0], means[arm][grid > 0], target) for arm, grid in grids.items()}
    if target == 0 or comparison.not_learned:  # a baseline that is never right sets no target
        crossings = {}
    _mark_crossings(axes, crossings, target, colors, longest)
    labels = [
        theme.EndLabel(y=float(mean[-1]), text=arm, color=colors[arm], note=_speedup_note(comparison, arm))
        for arm, mean in means.items()
    ]
    theme.label_ends(axes, labels, gap=0.12)


def band_half_width(accuracies: Array) -> Array:
    """Half the width [G] of the mean's 95 % interval over S seeds (Student's t), from [S, G]; zero for one seed.


    Example:
        >>> band_half_width(np.array([[0.4], [0.5], [0.6]])).round(3).tolist()
        [0.248]
    """
    num_seeds = accuracies.shape[0]
    if num_seeds == 1:
        return np.zeros(accuracies.shape[1])
    half: Array = student_t(num_seeds - 1) * accuracies.std(axis=0, ddof=1) / np.sqrt(num_seeds)
    return half


def draw_arm(axes: Axes, accuracies: Array, grid: Array, color: str) -> Array:
    """Draw the mean over seeds of accuracies [S, G] and its 95 % interval as a band; returns the mean [G]."""
    mean: Array = accuracies.mean(axis=0)
    if accuracies.shape[0] > 1:
        half = band_half_width(accuracies)
        low, high = np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)
        axes.fill_between(grid, low, high, step="post", color=color, alpha=0.16, linewidth=0)
    # Steps, because an accuracy is known from its evaluation until the next one and never before.
    axes.plot(grid, mean, color=color, linewidth=2.2, drawstyle="steps-post", solid_joinstyle="round")
    return mean


def _draw_target(axes: Axes, target: float, text: str) -> None:
    axes.axhline(target, color=theme.INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.annotate(
        theme.plain(text),
        (0, target),
        (6, 4),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        fontsize=8.5,
        color=theme.INK,
        # Over the grid, under the curves.
        zorder=1.5,
        bbox={"facecolor": theme.PAPER, "edgecolor": "none", "alpha": 0.85, "pad": 1},
    )


def _mark_crossings(
    axes: Axes,
    crossings: Mapping[str, float | None],
    target: float,
    colors: Mapping[str, str],
    longest: float,
) -> None:
    reached = sorted((time, arm) for arm, time in crossings.items() if time is not None)
    places = theme.spread([time / longest for time, _ in reached], 0.11)
    bottom = axes.get_ylim()[0]
    for (time, arm), place in zip(reached, places, strict=True):
        axes.vlines(time, bottom, target, color=colors[arm], linewidth=1.1, linestyle=(0, (1, 2)))
        axes.plot([time], [target], marker="o", markersize=7, color=colors[arm], markeredgecolor=theme.PAPER, zorder=5)
        axes.annotate(
            duration(time, longest=longest),
            (place, 0),
            (4, 4) if place < _FAR_RIGHT else (-4, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="left" if place < _FAR_RIGHT else "right",
            fontsize=9,
            color=colors[arm],
            weight="bold",
        )
    axes.set_ylim(bottom=bottom)


def _subtitle(comparison: Comparison) -> str:
    """What a line, its band and the text beside a name are."""
    counts = sorted({len(runs) for runs in comparison.runs.values()})
    first, interval = "one seed per arm", ""
    if counts[-1] > 1:
        count = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        first, interval = (
            f"mean of {count} seeds per arm; band: 95 % interval of the mean",
            " and its 95 % interval over seeds",
        )
    return first if comparison.not_learned else f"{first}\nbeside a name: speed-up{interval}"


def _speedup_note(comparison: Comparison, arm: str) -> str:
    if arm == comparison.baseline:
        return "baseline"
    return "" if comparison.not_learned else comparison.speedups[arm].text
