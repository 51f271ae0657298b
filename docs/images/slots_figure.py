"""Slots over time: a Gantt chart of one group of rollouts under several schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from podsrl.errors import UsageError
from podsrl.report.figures import theme

_COLUMNS = 2
_COLORS = LinearSegmentedColormap.from_list("lengths", colormaps["YlGnBu"](np.linspace(0.2, 0.85, 64)))
"""Without its ends, which are hard to tell from light and from dark paper."""


class Stay(Protocol):
    """One stay of a rollout in a slot, steps start .. end - 1."""

    @property
    def job(self) -> int: ...

    @property
    def slot(self) -> int: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


def slots_figure(schedules: Mapping[str, Sequence[Stay]], lengths: Sequence[int], *, title: str) -> Figure:
    """Draw which rollout stands in which slot in which step, one panel a schedule, on one scale of steps.

    Args:
        schedules: name -> stays, in any order; `job` is a place in `lengths`.
        lengths: [J] tokens of each rollout, which give it its colour.
        title: over the panels.

    Returns:
        The figure, 12 inches wide; its height grows with the number of schedules.

    Raises:
        UsageError: no schedule, or one without stays.

    Example:
        >>> from types import SimpleNamespace
        >>> stay = SimpleNamespace(job=0, slot=0, start=0, end=3)
        >>> slots_figure({"full": [stay]}, [3], title="One rollout").axes[0].get_title(loc="left")
        'full: 3 steps'
    """
    if not schedules or not all(schedules.values()):
        raise UsageError("schedules: wanted at least one, each with at least one stay")
    num_rows = -(-len(schedules) // _COLUMNS)
    figure = theme.new_figure(12.0, 1.0 + 2.3 * num_rows)
    panels = figure.subplots(num_rows, _COLUMNS, sharex=True, squeeze=False).ravel()
    norm = Normalize(0, max(lengths))
    last = max(stay.end for stays in schedules.values() for stay in stays)
    for axes, (name, stays) in zip(panels, schedules.items(), strict=False):
        _draw_schedule(axes, name, stays, _COLORS(norm(np.asarray(lengths))))
        axes.set_xlim(0, 1.01 * last)
    for axes in panels[len(schedules) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(schedules) - _COLUMNS) : len(schedules)]:
        axes.set_xlabel("decode step", fontsize=9, color=theme.MUTED)
        axes.tick_params(labelbottom=True)
    _draw_key(figure, list(panels), norm)
    figure.suptitle(theme.plain(title), x=0.012, ha="left", fontsize=13, weight="bold", color=theme.INK)
    return figure


def _draw_schedule(axes: Axes, name: str, stays: Sequence[Stay], colors: npt.NDArray[np.float64]) -> None:
    """Bars of one schedule; `colors` [J, 4] is one a rollout."""
    corners = np.array([[stay.start, stay.end, stay.slot] for stay in stays], dtype=np.float64)
    start, end, slot = corners.T
    boxes = np.stack(
        [np.stack(point, axis=-1) for point in ((start, slot), (end, slot), (end, slot + 1), (start, slot + 1))], axis=1
    )
    # paper-coloured edges part rollouts that follow each other in a slot
    edge = 0.5 if slot.max() < 64 else 0.2
    bars = PolyCollection(list(boxes), facecolors=colors[[stay.job for stay in stays]], edgecolors=theme.PAPER, lw=edge)
    axes.add_collection(bars)
    num_steps, num_slots = int(end.max()), int(slot.max()) + 1
    theme.style(axes, f"{name}: {num_steps} steps")
    axes.set_ylim(num_slots, 0)
    axes.grid(visible=False)
    axes.axvline(num_steps, color=theme.INK, linewidth=1.0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.set_ylabel("slot", fontsize=9, color=theme.MUTED)


def _draw_key(figure: Figure, panels: list[Axes], norm: Normalize) -> None:
    bar = figure.colorbar(ScalarMappable(norm, _COLORS), ax=panels, fraction=0.02, pad=0.01, aspect=40)
    bar.set_label("tokens of the rollout", fontsize=9, color=theme.MUTED)
    bar.ax.tick_params(labelsize=8, labelcolor=theme.MUTED, color=theme.GRID)
    bar.outline.set_visible(False)
