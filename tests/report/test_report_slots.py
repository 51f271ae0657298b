"""The Gantt chart of slots: bars, colours and names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from podsrl.errors import UsageError
from podsrl.report.plots import save_png
from podsrl.report.slots import slots_figure


@dataclass(frozen=True)
class Stay:
    job: int
    slot: int
    start: int
    end: int


MICRO = [Stay(0, 0, 0, 2), Stay(1, 1, 0, 3), Stay(2, 0, 3, 7)]
CONTINUOUS = [Stay(0, 0, 0, 2), Stay(1, 1, 0, 3), Stay(2, 0, 2, 6)]
LENGTHS = [2, 3, 4]


def draw() -> Figure:
    return slots_figure({"micro": MICRO, "continuous": CONTINUOUS}, LENGTHS, title="Three rollouts")


def bars(figure: Figure, panel: int) -> PolyCollection:
    (found,) = [c for c in figure.axes[panel].collections if isinstance(c, PolyCollection)]
    return found


def test_a_bar_spans_its_steps_in_its_slot() -> None:
    boxes = [path.get_extents() for path in bars(draw(), 0).get_paths()]
    assert [(box.x0, box.x1, box.y0, box.y1) for box in boxes] == [(0, 2, 0, 1), (0, 3, 1, 2), (3, 7, 0, 1)]


def test_panels_say_their_steps_and_share_one_scale() -> None:
    axes = draw().axes
    assert [panel.get_title(loc="left") for panel in axes[:2]] == ["micro: 7 steps", "continuous: 6 steps"]
    assert axes[0].get_xlim() == axes[1].get_xlim() == (0, pytest.approx(7.07))


def test_a_rollout_has_the_same_colour_in_every_panel_and_the_longest_is_darkest() -> None:
    figure = draw()
    colors = [bars(figure, panel).get_facecolor() for panel in (0, 1)]
    np.testing.assert_array_equal(*colors)
    brightness = np.asarray(colors[0])[:, :3].sum(axis=1)
    assert brightness[0] > brightness[1] > brightness[2]


def test_a_panel_without_a_schedule_stays_empty(tmp_path: Path) -> None:
    figure = slots_figure({"micro": MICRO}, LENGTHS, title="Three rollouts")
    assert figure.axes[0].axison and not figure.axes[1].axison
    assert save_png(figure, tmp_path / "slots.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("schedules", [{}, {"micro": []}])
def test_nothing_to_draw_is_refused(schedules: dict[str, list[Stay]]) -> None:
    with pytest.raises(UsageError, match="at least one stay"):
        slots_figure(schedules, LENGTHS, title="None")
