"""The picture of a result: accuracy against training seconds, and the seconds to the highest target."""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from benchmarks.trl_accuracy.times import TARGETS, ratio_text
from podsrl.report.figures import theme

Json = dict[str, Any]


def draw(result: Json) -> Figure:
    """Each seed's curve of every arm on the left, the median seconds to the highest target on the right."""
    arms, top = list(result["arms"]), TARGETS[-1]
    colors = theme.arm_colors(arms, result["peer"])
    figure = theme.new_figure(12.5, 5.0)
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1.0])
    _draw_curves(left, result, colors)
    _draw_bars(right, result, colors, f"{top:g}")
    sooner = result["clocks"]["seconds"][f"{top:g}"]["sooner"][result["ours"]]
    bound = "at least " if sooner["bound"] == "≥" else ""
    title = f"{result['ours']} reaches {100 * top:g} % {bound}{sooner['median']:.1f}× as fast as {result['peer']}"
    if sooner["bound"] in ("≤", "?"):
        title = f"{result['ours']} beside {result['peer']}"
    figure.suptitle(theme.plain(title), x=0.012, ha="left", fontsize=15, weight="bold", color=theme.INK)
    note = f"{result['hardware']}; TRL {result['trl']}"
    figure.supxlabel(theme.plain(note), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure


def _draw_curves(axes: Axes, result: Json, colors: dict[str, str]) -> None:
    for curves in result["curves"]:
        for arm, curve in curves.items():
            axes.plot(curve["seconds"][1:], curve["accuracy"][1:], color=colors[arm], linewidth=1.6, alpha=0.75)
    seeds = f"{result['seeds']} seeds, a line each" if result["seeds"] > 1 else "one seed"
    theme.style(
        axes,
        "Held-out accuracy",
        x_label="training seconds (logarithmic), evaluation excluded",
        subtitle=f"{seeds}; the colours are those of the bars",
    )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g} s"))
    axes.xaxis.set_minor_locator(LogLocator(subs=()))
    axes.set_ylim(0, 1.02)
    theme.percent_axis(axes)
    axes.axhline(TARGETS[-1], color=theme.INK, linewidth=0.9, linestyle=(0, (4, 3)))


def _draw_bars(axes: Axes, result: Json, colors: dict[str, str], target: str) -> None:
    found = result["clocks"]["seconds"]
    names = list(result["arms"])
    for place, arm in enumerate(names):
        times, trained = found[target]["seconds"][arm], found["trained"][arm]
        counted = [end if time is None else time for time, end in zip(times, trained, strict=True)]
        middle, is_missed = statistics.median(counted), None in times
        axes.barh(place, middle, color=colors[arm], height=0.62, alpha=0.35 if is_missed else 1.0)
        axes.plot([min(counted), max(counted)], [place, place], color=theme.INK, linewidth=1.2)
        text = f"{'not always in' if is_missed else ''} {middle:.1f} s".strip()
        if all(time is None for time in times):
            text = f"not in {middle:.1f} s"
        if arm != result["peer"]:
            text += f"   {ratio_text({**found[target]['sooner'][arm]}).split(' (')[0]} as fast"
        axes.annotate(
            text, (max(counted), place), (6, 0), textcoords="offset points", va="center", fontsize=9.5, color=theme.INK
        )
    axes.set_yticks(range(len(names)), [theme.plain(name) for name in names])
    axes.invert_yaxis()
    note = "median over seeds, line: lowest to highest" if result["seeds"] > 1 else "one seed"
    theme.style(
        axes,
        f"Training seconds to {100 * float(target):g} %",
        subtitle=f"{note}; beside it: against “{result['peer']}”",
    )
    axes.tick_params(axis="y", labelsize=10, labelcolor=theme.INK, length=0)
    axes.grid(visible=False)
    axes.set_xlim(0, 1.45 * axes.get_xlim()[1])
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
