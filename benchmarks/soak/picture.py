"""The picture of a soak: memory of each process, and bytes of each log, against steps."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.soak.page import TITLES
from podsrl.report.figures import theme

Json = dict[str, Any]


def draw(result: Json) -> Figure:
    """Memory on the left for each run, logs on the right."""
    runs = list(result["steps"])
    figure = theme.new_figure(12.5, 3.9 * len(runs))
    grid = figure.subplots(len(runs), 2, squeeze=False)
    for (left, right), run in zip(grid, runs, strict=True):
        beside = ("watch", "page") if run == "pods" else ()
        _lines(
            left,
            {_title(each): each["curve"] for each in result["processes"] if each["command"] in (run, *beside)},
            "Resident memory, MiB",
            2**20,
        )
        logs = {each["file"]: each["curve"] for each in result["files"] if each["command"] == run}
        _lines(right, logs, "Logs, MiB", 2**20)
    figure.supxlabel(theme.plain(result["hardware"]), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure


def _title(each: Json) -> str:
    return str(TITLES.get((each["command"], each["kind"]), each["kind"])).replace("`", "")


def _lines(axes: Axes, curves: dict[str, list[list[float]]], title: str, unit: float) -> None:
    colors = dict(zip(curves, theme.SERIES, strict=False))
    theme.style(axes, title, x_label="steps", key_rows=len(curves))
    theme.write_key(axes, colors, 1)
    for name, curve in curves.items():
        axes.plot([step for step, _ in curve], [value / unit for _, value in curve], color=colors[name], linewidth=1.6)
    theme.number_axis(axes, from_zero=True)
