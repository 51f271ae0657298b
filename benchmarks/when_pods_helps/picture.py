"""The map as a picture: speed-up against start accuracy, a line per n, beside the line at which nothing is gained."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.when_pods_helps.page import TARGET
from podsrl.report.figures import theme

Json = dict[str, Any]
_COLORS = {32: theme.SERIES[4], 64: theme.SERIES[0], 128: theme.SERIES[2], 256: theme.SERIES[1]}
"""By n, the same in every panel."""


def draw(result: Json) -> Figure:
    """PODS n → 16 over GRPO with and without a KL penalty, and over GRPO-GA, where measured; two-digit sums."""
    lines = [
        ("over GRPO 16 → 16, KL 0.04", "every kept rollout goes through the model", 0.04, "over_grpo"),
        ("over GRPO 16 → 16, no KL", "rollouts without a gradient are skipped", 0.0, "over_grpo"),
        ("over GRPO-GA n → n, KL 0.04", "all n are trained", 0.04, "over_grpo_ga"),
    ]
    starts = list(dict.fromkeys(row["start"] for row in result["rows"] if row["digits"] == 2))
    lines = [each for each in lines if any(_found(row, n, each[3]) for row in _rows(result, each[2]) for n in _COLORS)]
    figure = theme.new_figure(12.5, 4.6)
    panels = figure.subplots(1, max(1, len(lines)), sharey=True, squeeze=False)[0]
    for axes, (title, subtitle, kl, key) in zip(panels, lines, strict=False):
        by_start = {row["start"]: row for row in _rows(result, kl)}
        _draw_panel(axes, [by_start.get(start) for start in starts], key)
        theme.style(axes, title, subtitle=subtitle, x_label="right answers at the start")
        axes.set_xticks(range(len(starts)), [start.replace("%", " %") for start in starts])
    panels[0].set_yscale("log")
    for text, offset, side in (("PODS sooner ↑", 4, "bottom"), ("PODS later ↓", -4, "top")):
        panels[0].annotate(
            text, (-0.28, 1.0), (0, offset), textcoords="offset points", va=side, fontsize=8.5, color=theme.MUTED
        )
    panels[0].yaxis.set_major_locator(FixedLocator([0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8]))
    panels[0].yaxis.set_minor_locator(NullLocator())
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    title = f"How many times sooner PODS n → 16 has {100 * float(TARGET):g} % right"
    figure.suptitle(title, x=0.012, ha="left", fontsize=15, weight="bold", color=theme.INK)
    note = (
        f"CPU seconds of training, two-digit sums; band: lowest to highest seed; arrow: at least\n{result['hardware']}"
    )
    figure.supxlabel(theme.plain(note), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure


def _rows(result: Json, kl: float) -> list[Json]:
    """Of two-digit sums with this penalty."""
    return [row for row in result["rows"] if (row["digits"], row["kl"]) == (2, kl)]


def _draw_panel(axes: Axes, rows: list[Json | None], key: str) -> None:
    axes.axhline(1.0, color=theme.INK, linewidth=1.2)
    for n, color in _COLORS.items():
        points = [(place, found) for place, row in enumerate(rows) if (found := _found(row, n, key)) is not None]
        if not points:
            continue
        places = [place for place, _ in points]
        ratios = [found["ratio"] for _, found in points]
        low, high = ([end(found["ratios"]) for _, found in points] for end in (min, max))
        axes.fill_between(places, low, high, color=color, alpha=0.15, linewidth=0)
        axes.plot(places, ratios, color=color, linewidth=2.0, marker="o", markersize=5, label=f"n = {n}")
        for place, found in points:
            axes.plot([place, place], [min(found["ratios"]), max(found["ratios"])], color=color, linewidth=1.0)
            if found["bound"] == "≥":
                axes.plot(place, 1.12 * found["ratio"], color=color, marker="^", markersize=6)
    if axes.lines[1:]:
        axes.legend(frameon=False, fontsize=9, labelcolor=theme.INK, loc="upper right")
    axes.set_xlim(-0.3, len(rows) - 0.7)


def _found(row: Json | None, n: int, key: str) -> Json | None:
    """A speed-up at m = 16, where it was measured and is no unknown."""
    for arm in row["arms"] if row else ():
        if (arm["num_rollouts"], arm["num_kept"]) == (n, 16) and arm[key] is not None:
            found: Json = arm[key][TARGET]["cpu_seconds"]
            return found if found["ratio"] is not None else None
    return None
