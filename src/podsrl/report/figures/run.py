"""What one run did, or several laid over each other: one small figure per question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from podsrl.report.figures import theme
from podsrl.report.figures.bars import mean_stages, stage_figure, token_figure, tokens_per_step
from podsrl.report.read import Array, Run

_METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "reward": ("Mean reward", ("reward/all", "reward/kept")),
    "reward_std": ("Reward spread in a group (std)", ("reward_std/all", "reward_std/kept")),
    "train_accuracy": ("Right answers among all generated", ("accuracy/all",)),
    "length": ("Answer length, tokens", ("length/all", "length/kept")),
    "entropy": ("Policy entropy, nats per token", ("entropy",)),
    "grad_norm": ("Gradient norm before clipping", ("grad_norm",)),
    "zero_signal": ("Groups without signal", ("groups/zero_signal",)),
    "logprob_gap": ("Log-prob gap, generator to trainer", ("logprob_gap",)),
}
_FROM_ZERO = ("grad_norm", "logprob_gap")
_SHARES = ("accuracy/all", "groups/zero_signal")
_SOLID = (0, ())
_DASHED = (0, (2.5, 1.5))


def run_figures(
    runs: Mapping[str, Sequence[Run]], *, baseline: str | None = None, has_names: bool = True
) -> dict[str, Figure]:
    """Draw accuracy, rewards, lengths, entropy, gradient norm, time split and token ledger.

    Args:
        runs: label -> the runs that share it (the seeds of an arm, or a single run); one colour per label.
        has_names: write each label beside its lines; off where the page around the figures says which colour is whose.

    Returns:
        Figures by name, in reading order: accuracy, reward, reward_std, train_accuracy, length, entropy, grad_norm,
        zero_signal, logprob_gap, seconds, tokens. One for which no run has a number is left out.
    """
    colors = theme.arm_colors(list(runs), baseline)
    figures: dict[str, Figure] = {}
    if any(run.accuracy_curve()[0].size for group in runs.values() for run in group):
        figures["accuracy"] = _evaluation_figure(runs, colors, has_names)
    for name, (title, metrics) in _METRICS.items():
        shown = [metric for metric in metrics if _is_known(metric, runs)]
        if shown:
            figures[name] = _metric_figure(runs, colors, has_names, title, shown)
    if _is_known("seconds/total", runs):
        figures["seconds"] = stage_figure({label: mean_stages(group) for label, group in runs.items()})
    if _is_known("tokens/generated", runs):
        figures["tokens"] = token_figure({label: tokens_per_step(group) for label, group in runs.items()})
    return figures


def smooth(values: Array) -> Array:
    """Average each value with those just before it, a twentieth of the series in all; NaN is what is missing.

    Example:
        >>> smooth(np.arange(40.0))[:3].tolist()
        [0.0, 0.5, 1.5]
    """
    window = max(1, values.size // 20)
    known = np.isfinite(values)
    sums = np.concatenate([np.zeros(window), np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([np.zeros(window), np.cumsum(known)])
    in_window = counts[window:] - counts[:-window]
    mean: Array = np.divide(
        sums[window:] - sums[:-window], in_window, out=np.full(values.size, np.nan), where=in_window > 0
    )
    return mean


def _is_known(metric: str, runs: Mapping[str, Sequence[Run]]) -> bool:
    return any(np.isfinite(run.series(metric)).any() for group in runs.values() for run in group)


def _evaluation_figure(runs: Mapping[str, Sequence[Run]], colors: Mapping[str, str], has_names: bool) -> Figure:
    figure = theme.new_figure(4.2, 2.7)
    axes = figure.subplots()
    ends: dict[str, list[float]] = {}
    longest = 1.0
    for label, group in runs.items():
        for seconds, accuracies in (run.accuracy_curve() for run in group):
            [line] = axes.plot(seconds, accuracies, color=colors[label], linewidth=1.8, marker="o", markersize=3.5)
            line.set_gid(_line_id(axes, list(colors).index(label)))
            ends.setdefault(label, []).extend(accuracies[-1:])
            longest = max(longest, *seconds[-1:])
    theme.style(axes, "Held-out accuracy", x_label="training time, evaluation excluded")
    theme.percent_axis(axes)
    theme.time_axis(axes, longest)
    if has_names:
        _label_runs(axes, ends, colors)
    return figure


def _metric_figure(
    runs: Mapping[str, Sequence[Run]], colors: Mapping[str, str], has_names: bool, title: str, metrics: Sequence[str]
) -> Figure:
    figure = theme.new_figure(4.2, 2.7)
    axes = figure.subplots()
    is_single = len(runs) == 1 and len(next(iter(runs.values()))) == 1
    ends: dict[str, list[float]] = {}
    for label, group in runs.items():
        for run in group:
            for metric in metrics:
                end = _draw_metric(axes, run, metric, colors[label], is_single)
                axes.lines[-1].set_gid(_line_id(axes, list(colors).index(label)))
                ends.setdefault(_kind(metric) if is_single else label, []).append(end)
    theme.style(axes, title, x_label="step", subtitle="" if is_single or len(metrics) == 1 else "kept, and dashed all")
    if metrics[0] in _SHARES:
        theme.percent_axis(axes)
    else:
        theme.number_axis(axes, from_zero=metrics[0] in _FROM_ZERO)
    if has_names or is_single:
        _label_runs(axes, ends, colors)
    return figure


def _draw_metric(axes: Axes, run: Run, metric: str, color: str, is_single: bool) -> float:
    """Draw one metric of one run; return where its line ends."""
    steps, values = run.series("step"), run.series(metric)
    if metric == "groups/zero_signal":
        values = values / run.num_groups()
    style = _DASHED if metric.endswith("/all") and metric != "accuracy/all" else _SOLID
    if is_single:
        axes.plot(steps, values, color=color, linewidth=0.8, alpha=0.3)
    line = smooth(values)
    axes.plot(steps, line, color=color, linewidth=1.8 if is_single else 1.3, linestyle=style)
    known = line[np.isfinite(line)]
    return float(known[-1]) if known.size else np.nan


def _line_id(axes: Axes, place: int) -> str:
    """The newest line's id in the page: the place of its label in the legend, and a number of its own."""
    return f"arm-{place}-{len(axes.lines)}"


def _kind(metric: str) -> str:
    return metric.partition("/")[2] or metric


def _label_runs(axes: Axes, ends: Mapping[str, Sequence[float]], colors: Mapping[str, str]) -> None:
    """Write each label once, at the mean height of its lines' ends; a lone line needs none."""
    heights = {label: np.array(values)[np.isfinite(values)] for label, values in ends.items()}
    known = {label: float(values.mean()) for label, values in heights.items() if values.size}
    if len(known) > 1:
        labels = [
            theme.EndLabel(y=y, text=label, color=colors.get(label, theme.SERIES[0])) for label, y in known.items()
        ]
        theme.label_ends(axes, labels, gap=0.11)
