"""The paper's results as data, and a reproduction drawn and tabled beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper.beside import overlay_figure, paper_setting, reproduced_setting, rows_beside_paper
from podsrl.compare.speedups import speedup
from podsrl.errors import UsageError
from podsrl.report.figures.svg import save_svg
from podsrl.report.read import read_comparison


@pytest.mark.parametrize(("name", "expected"), [("a", 2.0), ("b", 2.0), ("c", 3.0)])
def test_the_paper_s_curves_give_the_speed_up_that_stands_beside_them(name: str, expected: float) -> None:
    setting = paper_setting(name)
    base, pods = setting.baseline, setting.pods
    found = speedup(base.seconds, base.accuracy, pods.seconds, pods.accuracy)
    assert found == pytest.approx(expected, rel=2e-3) and pods.speedup == expected and base.speedup == 1.0


def test_settings_have_the_sizes_and_seconds_of_the_paper() -> None:
    found = {
        name: [
            (arm.num_rollouts, arm.num_kept, arm.seconds_per_step)
            for arm in (paper_setting(name).baseline, paper_setting(name).pods)
        ]
        for name in "abcde"
    }
    assert found == {
        "a": [(16, 16, 7.56), (64, 16, 10.12)],
        "b": [(8, 8, 7.87), (32, 8, 10.12)],
        "c": [(16, 16, 7.74), (64, 16, 10.89)],
        "d": [(512, 512, 21.8), (512, 128, 10.1)],
        "e": [(512, 512, 39.8), (512, 128, 9.5)],
    }
    assert [paper_setting(name).pods.speedup for name in "de"] == [1.71, 1.75]
    a = paper_setting("a")
    assert a.start_accuracy == 0.5995 and a.pods.seconds[-1] == 6 * 3600 and a.baseline.accuracy.max() == 0.8164
    with pytest.raises(UsageError, match="Known: a, b, c, d, e"):
        paper_setting("z")


@pytest.fixture
def reproduction(make_comparison: Callable[..., Path], tmp_path: Path) -> Path:
    """20 s a run, two seeds; grpo at best 82.5 % at 20 s, pods there from 10 s on."""
    folder = make_comparison(tmp_path / "out")
    (folder / "reproduce.json").write_text('{"setting": "a"}')
    return folder


def test_rows_stand_beside_the_paper_s(reproduction: Path) -> None:
    comparison, setting = read_comparison(reproduction), reproduced_setting(reproduction)
    grpo, pods = rows_beside_paper(comparison, setting)
    assert (grpo.arm, pods.arm, pods.num_seeds) == ("grpo", "pods", 2)
    assert pods.accuracy == (pytest.approx(0.925), 0.826) and grpo.accuracy == (pytest.approx(0.825), 0.8076)
    assert pods.num_rollouts == (4, 64) and pods.num_kept == (2, 16)
    assert pods.seconds_per_step == (1.5, 10.12)
    assert pods.speedup[0].point == 2.0 and pods.speedup[1] == 2.0
    assert pods.speedup[0].text == "2.00× (1.50–2.50)"


def test_the_figure_draws_both_sides_on_shares_where_their_times_are_far_apart(reproduction: Path) -> None:
    axes = overlay_figure(reproduction).axes[0]
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) > 2]
    ours, theirs = lines[:2], lines[2:]
    assert np.asarray(ours[1].get_ydata()).tolist() == pytest.approx([0.125, 0.825, 0.925])
    assert np.asarray(ours[1].get_xdata()).tolist() == [0, 0.5, 1.0]
    assert np.asarray(theirs[1].get_ydata()).tolist() == [0.5995, *paper_setting("a").pods.accuracy.tolist()]
    assert theirs[1].get_xdata()[-1] == 1.0 and theirs[1].get_linestyle() != ours[1].get_linestyle()
    assert theirs[1].get_color() == ours[1].get_color() != ours[0].get_color()
    assert "share of training time: ours 20 s, the paper's 6 h" in axes.get_xlabel()
    levels = sorted(line.get_ydata()[0] for line in axes.get_lines() if len(line.get_xdata()) == 2)
    assert levels == pytest.approx([0.99 * 0.8164, 0.99 * 0.825])
    words = " ".join(text.get_text() for text in axes.texts)
    assert "pods, ours" in words and "PODS, the paper's" in words and "2.00× (1.50–2.50)" in words


def test_equal_times_are_drawn_in_hours(reproduction: Path) -> None:
    data = json.loads((reproduction / "compare.json").read_text())
    data["grid_seconds"]["pods"] = [0, 10, 20000]
    (reproduction / "compare.json").write_text(json.dumps(data))
    axes = overlay_figure(reproduction).axes[0]
    assert axes.get_xlim() == (0, 21600) and "training time" in axes.get_xlabel()


def test_without_the_paper_s_curve_ours_is_drawn_alone(reproduction: Path) -> None:
    (reproduction / "reproduce.json").write_text('{"setting": "d"}')
    axes = overlay_figure(reproduction).axes[0]
    assert len([line for line in axes.get_lines() if len(line.get_xdata()) > 2]) == 2
    assert not any("the paper's" in text.get_text() for text in axes.texts if "solid" not in text.get_text())
    assert axes.get_xlim() == (0, 20)


def test_a_picture_can_be_saved(reproduction: Path, tmp_path: Path) -> None:
    assert save_svg(overlay_figure(reproduction), tmp_path / "a.svg").stat().st_size > 20_000
    (reproduction / "reproduce.json").write_text("{}")
    with pytest.raises(UsageError, match="benchmarks reproduce"):
        overlay_figure(reproduction)
