"""Figures of comparisons and runs, each a matplotlib `Figure` without window or global state.

In: records of `read.py`, or plain curves. Out: figures, and with `save_png` pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from podsrl.compare.curves import Curve
from podsrl.compare.interval import SpeedupInterval
from podsrl.errors import UsageError
from podsrl.report import theme
from podsrl.report.accuracy import AccuracyData, draw_accuracy
from podsrl.report.bars import draw_stages, draw_tokens, mean_stages, stage_figure, token_figure, tokens_a_step
from podsrl.report.heatmap import speedup_heatmap, value_heatmap
from podsrl.report.read import Comparison
from podsrl.report.run_plots import run_figures

__all__ = [
    "accuracy_figure",
    "comparison_figure",
    "headline",
    "run_figures",
    "save_png",
    "speedup_heatmap",
    "stage_figure",
    "token_figure",
    "value_heatmap",
]


def accuracy_figure(
    curves: Mapping[str, Sequence[Curve]],
    grid: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    *,
    baseline: str,
    fraction: float = 0.99,
    speedups: Mapping[str, SpeedupInterval] | None = None,
) -> Figure:
    """Draw held-out accuracy against training time, by arm.

    Each arm is its mean over seeds, with the mean's 95 % interval (Student's t) as a band. The thin line is the target;
    the dot on it is the first grid time at which the arm's mean is there.

    Args:
        curves: arm -> one curve a seed, (training seconds, accuracies between 0 and 1).
        grid: [G] training seconds, strictly increasing, from the first evaluation on; of all arms, or by arm.
        baseline: the arm whose best mean accuracy sets the target; one of `curves`.
        fraction: of that accuracy, above 0 and at most 1.
        speedups: arm -> speed-up, written beside the arm's name.

    Returns:
        The figure, 7.6 × 4.3 inches.

    Raises:
        UsageError: a baseline that is no arm, a malformed curve or grid (see `run.speedup`).

    Example:
        >>> figure = accuracy_figure({"grpo": [([0, 10, 20], [0.1, 0.4, 0.5])]}, [0, 10, 20], baseline="grpo")
        >>> figure.axes[0].get_lines()[0].get_ydata().tolist()
        [0.1, 0.4, 0.5]
    """
    if baseline not in curves:
        raise UsageError(f"baseline {baseline!r} is no arm; the arms are {', '.join(curves)}")
    by_arm = grid if isinstance(grid, Mapping) else dict.fromkeys(curves, grid)
    grids = {arm: np.asarray(by_arm[arm], dtype=np.float64) for arm in curves}
    data = AccuracyData(curves=curves, grids=grids, baseline=baseline, fraction=fraction, speedups=speedups or {})
    figure = theme.new_figure(7.6, 4.3)
    draw_accuracy(figure.subplots(), data)
    return figure


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw accuracy against time beside a step's time and tokens, under the result in one sentence.

    Args:
        comparison: as `read_comparison` returns it.

    Returns:
        The figure, 12.5 × 5.4 inches.

    Raises:
        UsageError: a run without the evaluations that the grid asks for.
    """
    data = AccuracyData(
        curves={arm: [run.accuracy_curve(comparison.metric) for run in runs] for arm, runs in comparison.runs.items()},
        grids=comparison.grid_seconds,
        baseline=comparison.baseline,
        fraction=comparison.fraction,
        speedups=comparison.speedups,
        title=f"Held-out accuracy{comparison.metric_note}",
    )
    figure = theme.new_figure(12.5, 5.4)
    axes = figure.subplot_mosaic([["accuracy", "stages"], ["accuracy", "tokens"]], width_ratios=[1.5, 1.0])
    draw_accuracy(axes["accuracy"], data)
    draw_stages(axes["stages"], {arm: mean_stages(runs) for arm, runs in comparison.runs.items()}, key_columns=3)
    draw_tokens(axes["tokens"], {arm: tokens_a_step(runs) for arm, runs in comparison.runs.items()})
    figure.suptitle(theme.plain(headline(comparison)), x=0.012, ha="left", fontsize=15, weight="bold", color=theme.INK)
    figure.supxlabel(theme.plain(comparison.hardware), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure


def headline(comparison: Comparison) -> str:
    """Say a comparison's result in one sentence, for the arm that reaches the target first."""
    ratios = {
        arm: found.point
        for arm, found in comparison.speedups.items()
        if found.point is not None and arm != comparison.baseline
    }
    goal = f"{comparison.fraction * 100:g} % of {comparison.baseline}'s best accuracy"
    if not ratios:
        return f"No other arm reaches {goal}"
    best = max(ratios, key=lambda arm: ratios[arm])
    return f"{best} reaches {goal} {ratios[best]:.2f}× as fast"


def save_png(figure: Figure, path: Path | str) -> Path:
    """Write a figure as a PNG of 160 dots an inch and return its path."""
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=160)
    return Path(path)
