"""What an accuracy costs, by arm: over the baseline's cost, and accuracy against a cost in one small panel per arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from podsrl.compare.costs import COSTS, cost_curve
from podsrl.compare.curves import Curve, common_grid, curves_on_grid
from podsrl.compare.speedups import time_to_accuracy
from podsrl.errors import cut
from podsrl.report.comparison import Comparison
from podsrl.report.figures import theme
from podsrl.report.figures.accuracy import draw_arm
from podsrl.report.numbers import compact

_COLUMNS = 4
_RATIOS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
_WIDEST = 16.0
"""An interval is drawn up to so many times more or less."""


def needed_figure(comparison: Comparison) -> Figure:
    """Draw each arm's cost to the target over the baseline's, with its interval: a row per arm, a panel per cost."""
    arms = [arm for arm in comparison.runs if arm != comparison.baseline]
    colors = theme.arm_colors(list(comparison.runs), comparison.baseline)
    figure = theme.new_figure(12.5, 1.3 + 0.36 * len(arms))
    panels = figure.subplots(1, len(comparison.costs), sharey=True, squeeze=False)[0]
    for axes, (cost, spent) in zip(panels, comparison.costs.items(), strict=True):
        found = {arm: spent[arm].needed for arm in arms}
        for row, arm in enumerate(arms):
            needed = found[arm]
            if needed.point is None:
                axes.annotate(
                    "not reached", (1, row), (6, 0), textcoords="offset points", va="center", fontsize=8.5,
                    color=theme.MUTED,
                )  # fmt: skip
                continue
            ends = np.clip([needed.low, needed.high], 1 / _WIDEST, _WIDEST)
            axes.plot(ends, [row, row], color=colors[arm], linewidth=2, alpha=0.55, solid_capstyle="butt")
            axes.plot([needed.point], [row], marker="o", markersize=7, color=colors[arm])
            axes.annotate(
                f"{needed.point:.2f}×", (needed.point, row), (0, 7), textcoords="offset points", ha="center",
                fontsize=8.5, color=theme.INK,
            )  # fmt: skip
        theme.style(axes, COSTS[cost].capitalize())
        _ratio_axis(axes, [end for each in found.values() if each.point is not None for end in (each.low, each.high)])
    panels[0].set_yticks(range(len(arms)), [theme.plain(cut(arm, theme.LONGEST_NAME)) for arm in arms], color=theme.INK)
    panels[0].set_ylim(len(arms) - 0.4, -0.8)
    return figure


def cost_figure(comparison: Comparison, cost: str) -> Figure:
    """Draw held-out accuracy against a cost: one panel per arm, the baseline in each.

    Args:
        cost: one of `comparison.costs`.
    """
    curves = {
        arm: [curve for run in runs if (curve := cost_curve(run.steps, run.evaluations, cost, comparison.metric))]
        for arm, runs in comparison.runs.items()
    }
    arms = [arm for arm in curves if arm != comparison.baseline]
    colors = theme.arm_colors(list(curves), comparison.baseline)
    rows = -(-len(arms) // _COLUMNS)
    columns = min(len(arms), _COLUMNS)
    figure = theme.new_figure(3.1 * columns + 0.1, 2.2 * rows + 0.4)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    base_grid = common_grid(curves[comparison.baseline])
    best = float(curves_on_grid(curves[comparison.baseline], base_grid).mean(axis=0).max())
    for axes, arm in zip(panels, arms, strict=False):
        _draw(axes, curves, {comparison.baseline: theme.BASELINE, arm: colors[arm]}, comparison.fraction * best)
        theme.style(axes, cut(arm, theme.LONGEST_NAME))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
        axes.set_xlim(left=0)
    theme.percent_axis(panels[0])  # all share it
    for axes in panels[len(arms) :]:
        axes.set_axis_off()
    return figure


def _draw(axes: Axes, curves: Mapping[str, Sequence[Curve]], colors: Mapping[str, str], target: float) -> None:
    for arm, color in colors.items():
        grid = common_grid(curves[arm])
        mean = draw_arm(axes, curves_on_grid(curves[arm], grid), grid, color)
        reached = time_to_accuracy(grid, mean, target)
        if target > 0 and reached is not None:
            axes.plot([reached], [target], marker="o", markersize=6, color=color, markeredgecolor=theme.PAPER, zorder=5)
    axes.axhline(target, color=theme.INK, linewidth=0.8, linestyle=(0, (4, 3)))


def _ratio_axis(axes: Axes, ends: list[float]) -> None:
    """A log axis around 1 that holds all ends, at most `_WIDEST` times more or less."""
    widest = max([2.0, *(max(end, 1 / end) if end > 0 else _WIDEST for end in ends)])
    limit = min(_WIDEST, widest) * 1.15
    axes.set_xscale("log")
    axes.set_xlim(1 / limit, limit)
    axes.xaxis.set_major_locator(FixedLocator([ratio for ratio in _RATIOS if 1 / limit <= ratio <= limit]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}×" if ratio >= 1 else f"1/{1 / ratio:g}"))
    axes.axvline(1, color=theme.BASELINE, linewidth=1)
    axes.grid(axis="y", visible=False)
