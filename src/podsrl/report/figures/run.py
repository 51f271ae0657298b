"""What one run did, or several laid over each other: one small figure per question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from podsrl.errors import cut
from podsrl.report.figures import theme
from podsrl.report.figures.bars import mean_stages, stage_figure, token_figure, tokens_per_step
from podsrl.report.numbers import compact
from podsrl.report.read import Array, Histogram, Run

_METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "reward": ("Mean reward", ("reward/all", "reward/kept")),
    "reward_std": ("Reward spread in a group (std)", ("reward_std/all", "reward_std/kept")),
    "train_accuracy": ("Correct answers among all generated", ("accuracy/all",)),
    "length": ("Answer length, tokens", ("length/all", "length/kept")),
    "entropy": ("Policy entropy, nats per token", ("entropy",)),
    "grad_norm": ("Gradient norm before clipping", ("grad_norm",)),
    "zero_signal": ("Groups without signal", ("groups/zero_signal",)),
    "logprob_gap": ("Log-prob gap, generator to trainer", ("logprob_gap",)),
    "kl": ("KL from the starting model, nats per token", ("kl",)),
    "clip_fraction": ("Trained tokens that are clipped", ("clip_fraction",)),
    "lr": ("Learning rate", ("lr",)),
    "tokens_per_second": ("Generated tokens per second", ("seconds/tokens_per_second",)),
}
_SIZES: dict[str, tuple[str, tuple[str, ...]]] = {
    "sizes": ("Rollouts per question", ("rollouts/all", "rollouts/kept")),
    "mixed": ("Groups with correct and wrong answers", ("groups/mixed",)),
}
"""What a step chose, and why; left out where all steps have one size."""
_PER_GROUP = ("groups/zero_signal", *_SIZES["sizes"][1], *_SIZES["mixed"][1])
_SPREADS = {
    "lengths": "Answer length, spread in a step",
    "advantages": "Advantages of the trained rollouts",
    "lags": "Age of the trained rollouts, in weight updates",
}
_FROM_ZERO = ("grad_norm", "logprob_gap", "lr", "seconds/tokens_per_second", "rollouts/all")
_SHARES = ("accuracy/all", "groups/zero_signal", "groups/mixed", "clip_fraction")
_IN_SEVERAL_EPOCHS = ("clip_fraction",)
"""Always 0 with one epoch, and then left out."""
_BANDS = 20
_COLUMNS = 120
"""Most columns of a strip; a longer run has several steps in each."""
_SOLID = (0, ())
_DASHED = (0, (2.5, 1.5))


def run_figures(runs: Mapping[str, Sequence[Run]], *, baseline: str | None = None) -> dict[str, Figure]:
    """Draw accuracy, rewards, lengths, entropy, gradient norm, time split and token ledger.

    Args:
        runs: label -> the runs that share it (the seeds of an arm, or a single run); one colour per label,
            which the page around the figures explains.

    Returns:
        Figures by name, in reading order: accuracy; of a single run, the rewards of its steps; reward, reward_std and
        so on, one per reward function; of a single run, the spread of lengths and advantages; seconds, tokens. One for
        which no run has a number is left out.
    """
    colors = theme.arm_colors(list(runs), baseline)
    figures: dict[str, Figure] = {}
    if any(run.accuracy_curve()[0].size for group in runs.values() for run in group):
        figures["accuracy"] = _evaluation_figure(runs, colors)
    alone = [run for group in runs.values() for run in group]
    histograms = alone[0].histograms if len(alone) == 1 else {}
    if "rewards" in histograms:
        figures["rewards"] = _strip_figure(histograms["rewards"], histograms.get("rewards_kept", {}))
    sizes = _SIZES if any(_has_other_sizes(run) for run in alone) else {}
    titles = {"reward": _METRICS["reward"], **_reward_functions(alone), **_METRICS, **sizes, **_levels(alone)}
    for name, (title, metrics) in titles.items():
        shown = [metric for metric in metrics if _is_known(metric, runs)]
        if shown:
            figures[name] = _metric_figure(runs, colors, title, shown)
    for name, title in _SPREADS.items():
        if name in histograms:
            figures[name] = _spread_figure(histograms[name], title)
    if _is_known("seconds/total", runs):
        figures["seconds"] = stage_figure({label: mean_stages(group) for label, group in runs.items()})
    if _is_known("tokens/generated", runs):
        figures["tokens"] = token_figure({label: tokens_per_step(group) for label, group in runs.items()})
    return figures


def curve_figures(run: Run) -> dict[str, Figure]:
    """The first of a single run's `run_figures`: held-out accuracy and mean reward, as far as it has them."""
    runs, colors = {"": [run]}, theme.arm_colors([""], None)
    title, metrics = _METRICS["reward"]
    figures = {"accuracy": _evaluation_figure(runs, colors)} if run.accuracy_curve()[0].size else {}
    return figures | ({"reward": _metric_figure(runs, colors, title, metrics)} if run.steps else {})


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
    each = [run.series(metric) for group in runs.values() for run in group]
    return any((values > 0).any() if metric in _IN_SEVERAL_EPOCHS else np.isfinite(values).any() for values in each)


def _per_group(run: Run, metric: str) -> Array:
    """A count of each step over its groups, those that were left out too where the count holds them; NaN for none.

    Of the counts that of groups without signal alone is one of chunks, as `groups/all` is.
    """
    left_out = np.nan_to_num(run.series("groups/left_out")) if metric == "groups/mixed" else 0.0
    num_chunks = 1 if metric == "groups/zero_signal" else run.option("select.num_chunks") or 1
    groups = run.series("groups/all") / num_chunks + left_out
    found: Array = np.divide(run.series(metric), groups, out=np.full(groups.size, np.nan), where=groups > 0)
    return found


def _has_other_sizes(run: Run) -> bool:
    """Whether steps differ in what they generated or trained per question."""
    each = [_per_group(run, metric) for metric in _SIZES["sizes"][1]]
    return any(np.unique(values[np.isfinite(values)]).size > 1 for values in each)


def _reward_functions(runs: Sequence[Run]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """As `_METRICS`: a figure per reward function."""
    keys = dict.fromkeys(key for run in runs for key in (run.steps[-1] if run.steps else {}))
    means = [key for key in keys if key.startswith("rewards/") and key.endswith("/mean")]
    names = [mean.removeprefix("rewards/").removesuffix("/mean") for mean in means]
    return {
        f"reward_function_{place}": (f"Reward function {cut(name, theme.LONGEST_NAME)}", (f"rewards/{name}/std", mean))
        for place, (name, mean) in enumerate(zip(names, means, strict=True))
    }


def _strip_figure(generated: Mapping[int, Histogram], trained: Mapping[int, Histogram]) -> Figure:
    """The rewards of each step: all that were generated, over those that were trained on."""
    figure = theme.new_figure(4.2, 2.7)
    panels = figure.subplots(2, 1, sharex=True)
    both = [*generated.values(), *trained.values()]
    low, high = min(one.low for one in both), max(one.high for one in both)
    for axes, histograms, name in zip(panels, (generated, trained), ("generated", "trained"), strict=True):
        _draw_strip(axes, histograms, low, high)
        is_first = axes is panels[0]
        subtitle = f"share of rollouts; the darker, the higher: {compact(low)} to {compact(high)}"
        theme.style(axes, "Rewards of a step" if is_first else "", subtitle=subtitle if is_first else "")
        theme.percent_axis(axes)
        axes.set_ylabel(name, fontsize=9, color=theme.MUTED)
    panels[1].set_xlabel("step", fontsize=9, color=theme.MUTED)
    theme.step_axis(panels[1])
    return figure


def _draw_strip(axes: Axes, histograms: Mapping[int, Histogram], low: float, high: float) -> None:
    """Stack each step's shares of rollouts, the lowest rewards below."""
    steps = np.array(sorted(histograms))
    if not steps.size:
        return
    columns = np.array_split(steps, min(steps.size, _COLUMNS))
    counts = np.zeros((_BANDS, len(columns)))
    for place, column in enumerate(columns):
        for reward, count in chain.from_iterable(histograms[step].bins() for step in column.tolist()):
            share = (reward - low) / (high - low) if high > low else 1.0
            counts[min(int(share * _BANDS), _BANDS - 1), place] += count
    edges = np.array([*(column[0] - 0.5 for column in columns), steps[-1] + 0.5])
    bounds = np.vstack([np.zeros(len(columns)), np.cumsum(counts / counts.sum(axis=0), axis=0)])
    bounds = np.hstack([bounds, bounds[:, -1:]])  # a step is drawn up to the next one's edge
    for band in np.flatnonzero(counts.any(axis=1)).tolist():
        alpha = 0.12 + 0.88 * band / (_BANDS - 1)
        axes.fill_between(
            edges, bounds[band], bounds[band + 1], step="post", color=theme.SERIES[0], alpha=alpha, linewidth=0
        )
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 1)


def _spread_figure(histograms: Mapping[int, Histogram], title: str) -> Figure:
    """Median, middle half and range of each step's values, as its bins tell them."""
    figure = theme.new_figure(4.2, 2.7)
    axes = figure.subplots()
    steps = sorted(histograms)
    low, quarter, middle, upper, high = np.array([_quantiles(histograms[step]) for step in steps]).T
    for bottom, top, alpha in ((low, high, 0.12), (quarter, upper, 0.3)):
        axes.fill_between(steps, bottom, top, color=theme.SERIES[0], alpha=alpha, linewidth=0)
    axes.plot(steps, middle, color=theme.SERIES[0], linewidth=1.5)
    theme.style(axes, title, x_label="step", subtitle="line: median; dark: the middle half; light: all")
    theme.number_axis(axes, from_zero=False)
    theme.step_axis(axes)
    return figure


def _quantiles(histogram: Histogram) -> list[float]:
    """Smallest value, lower quartile, median, upper quartile and largest value, even within a bin."""
    counts = np.array(histogram.counts)
    edges = np.linspace(histogram.low, histogram.high, counts.size + 1)
    total = np.concatenate([[0.0], np.cumsum(counts) / counts.sum()])
    inner = np.interp([0.25, 0.5, 0.75], total, edges)
    return [histogram.low, *inner.tolist(), histogram.high]


def _evaluation_figure(runs: Mapping[str, Sequence[Run]], colors: Mapping[str, str]) -> Figure:
    figure = theme.new_figure(4.2, 2.7)
    axes = figure.subplots()
    longest = 1.0
    for label, group in runs.items():
        for seconds, accuracies in (run.accuracy_curve() for run in group):
            [line] = axes.plot(seconds, accuracies, color=colors[label], linewidth=1.8, marker="o", markersize=3.5)
            line.set_gid(_line_id(axes, list(colors).index(label)))
            longest = max(longest, *seconds[-1:])
    theme.style(axes, "Held-out accuracy", x_label="training time, evaluation excluded")
    theme.percent_axis(axes)
    theme.time_axis(axes, longest)
    return figure


def _levels(runs: Sequence[Run]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """As `_METRICS`: a figure per kind of question that has levels (`podsrl.control.levels`)."""
    keys = dict.fromkeys(
        key for run in runs for key in (run.steps[-1] if run.steps else {}) if key.startswith("level/")
    )
    names = [cut(key.removeprefix("level/"), theme.LONGEST_NAME) for key in keys]
    return {
        f"level_{place}": (f"Level of {name}" if name else "Level", (key,))
        for place, (key, name) in enumerate(zip(keys, names, strict=True))
    }


def _metric_figure(
    runs: Mapping[str, Sequence[Run]], colors: Mapping[str, str], title: str, metrics: Sequence[str]
) -> Figure:
    figure = theme.new_figure(4.2, 2.7)
    axes = figure.subplots()
    is_single = len(runs) == 1 and len(next(iter(runs.values()))) == 1
    ends: dict[str, float] = {}
    for label, group in runs.items():
        for run in group:
            for metric in metrics:
                ends[_kind(metric)] = _draw_metric(axes, run, metric, colors[label], is_single)
                axes.lines[-1].set_gid(_line_id(axes, list(colors).index(label)))
    theme.style(axes, title, x_label="step", subtitle="" if is_single else _line_kinds(metrics))
    if metrics[0] in _SHARES:
        theme.percent_axis(axes)
    else:
        theme.number_axis(axes, from_zero=metrics[0] in _FROM_ZERO)
    theme.step_axis(axes)
    if is_single:
        _name_lines(axes, ends)
    return figure


def _draw_metric(axes: Axes, run: Run, metric: str, color: str, is_single: bool) -> float:
    """Draw one metric of one run; return where its line ends."""
    steps, values = run.series("step"), run.series(metric)
    if metric in _PER_GROUP:
        values = _per_group(run, metric)
    style = _DASHED if metric.endswith(("/all", "/std")) and metric != "accuracy/all" else _SOLID
    if is_single:
        axes.plot(steps, values, color=color, linewidth=0.8, alpha=0.3)
    line = smooth(values)
    axes.plot(steps, line, color=color, linewidth=1.8 if is_single else 1.3, linestyle=style)
    known = line[np.isfinite(line)]
    return float(known[-1]) if known.size else np.nan


def _line_id(axes: Axes, place: int) -> str:
    """The newest line's id in the page: the place of its label in the legend, and a number of its own."""
    return f"arm-{place}-{len(axes.lines)}"


def _line_kinds(metrics: Sequence[str]) -> str:
    return f"{_kind(metrics[1])}, and dashed {_kind(metrics[0])}" if len(metrics) > 1 else ""


def _kind(metric: str) -> str:
    return metric.rpartition("/")[2]


def _name_lines(axes: Axes, ends: Mapping[str, float]) -> None:
    """Write the name of each of several lines at its end."""
    known = {name: end for name, end in ends.items() if np.isfinite(end)}
    if len(known) > 1:
        labels = [theme.EndLabel(y=end, text=name, color=theme.SERIES[0]) for name, end in known.items()]
        theme.label_ends(axes, labels, gap=0.11)
