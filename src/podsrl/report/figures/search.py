"""Accuracy of searches against the tokens that they generate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from podsrl.evaluation.search.result import Point
from podsrl.report.figures import theme

_BASELINE = "majority"
"""Is drawn in grey."""


def search_figure(points: Sequence[Point]) -> Figure:
    """Draw each search's accuracy over widths, with its 95 % interval, against the mean tokens per question.

    The tokens are on a logarithmic axis, with a tick at each width of the first search.
    """
    searches = list(dict.fromkeys(point.search for point in points))
    colors, labels = theme.arm_colors(searches, _BASELINE), []
    figure = theme.new_figure(8, 4.6)
    axes = figure.subplots()
    for search, color in colors.items():
        own = [point for point in points if point.search == search]
        tokens, accuracies = [point.tokens for point in own], [point.accuracy for point in own]
        ends = np.array([point.interval for point in own]).T
        errors = np.abs(ends - accuracies)
        axes.errorbar(
            tokens, accuracies, yerr=errors, color=color, linewidth=2.2, elinewidth=1.1, marker="o", markersize=5
        )
        labels.append(theme.EndLabel(y=accuracies[-1], text=search, color=color))
    subtitle = f"{points[0].num_questions:,} questions; bars: 95 % interval over questions"
    theme.style(axes, "Right answers", x_label="generated tokens per question (mean)", subtitle=subtitle)
    theme.percent_axis(axes)
    axes.set_xscale("log", base=2)
    axes.set_xticks([point.tokens for point in points if point.search == searches[0]])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    theme.label_ends(axes, labels, gap=0.07)
    return figure
