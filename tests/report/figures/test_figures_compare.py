"""Figures: what is drawn is what was measured, number by number."""

from __future__ import annotations

import base64
import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes

from podsrl.compare.interval import SpeedupInterval
from podsrl.errors import UsageError
from podsrl.report.comparison import read_comparison
from podsrl.report.figures.accuracy import band_half_width, draw_accuracy
from podsrl.report.figures.bars import stage_figure, token_figure
from podsrl.report.figures.compare import comparison_figure, headline
from podsrl.report.figures.svg import save_svg, svg_image
from podsrl.report.figures.theme import new_figure
from run_folders import write_comparison

GRID = [0, 10, 20, 30]
SLOW = [([0, 10, 20, 30], [0.1, 0.2, 0.4, 0.6]), ([0, 12, 20, 30], [0.1, 0.4, 0.6, 1.0])]
FAST = [([0, 10, 20], [0.1, 0.8, 0.7]), ([0, 10, 20], [0.1, 0.8, 0.9])]


def _texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def _accuracy(curves: dict[str, Any], grid: Any, *, baseline: str, speedups: dict[str, Any] | None = None) -> Axes:
    grids = {arm: np.array(grid[arm] if isinstance(grid, dict) else grid, dtype=np.float64) for arm in curves}
    axes = new_figure(7.6, 4.3).subplots()
    unknown = dict.fromkeys(curves, SpeedupInterval(point=1.0, low=0.0, high=float("inf"), share_unreached=0.0))
    comparison = SimpleNamespace(
        **{
            "runs": curves,
            "curves": lambda: curves,
            "grid_seconds": grids,
            "baseline": baseline,
            "fraction": 0.99,
            "clock": "seconds",
        },
        **{"speedups": unknown | (speedups or {}), "not_learned": None, "metric_note": ""},
    )
    draw_accuracy(axes, comparison)  # type: ignore[arg-type]  # as much of a comparison as it reads
    return axes


def _draw() -> Axes:
    speedups = {"fast": SpeedupInterval(point=3.0, low=1.5, high=3.0, share_unreached=0.0)}
    return _accuracy({"slow": SLOW, "fast": FAST}, GRID, baseline="slow", speedups=speedups)


def test_an_arm_is_the_mean_of_its_seeds_and_holds_the_last_evaluation() -> None:
    slow, fast = _draw().get_lines()[:2]
    assert slow.get_xdata().tolist() == GRID
    # At 10 s the second slow run was last evaluated at 0 s: (0.2 + 0.1) / 2.
    np.testing.assert_allclose(slow.get_ydata(), [0.1, 0.15, 0.5, 0.8])
    np.testing.assert_allclose(fast.get_ydata(), [0.1, 0.8, 0.8, 0.8])
    assert slow.get_drawstyle() == "steps-post"


def test_the_target_and_the_crossing_times_are_marked() -> None:
    axes = _draw()
    target = axes.get_lines()[2]
    np.testing.assert_allclose(target.get_ydata(), [0.792, 0.792])
    marks = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.get_lines()[3:]]
    assert marks == [([10.0], [pytest.approx(0.792)]), ([30.0], [pytest.approx(0.792)])]
    assert {"10 s", "30 s", "99 % of slow's best: 79.2 %", "slow", "baseline", "fast"} <= set(_texts(axes))


def test_each_arm_is_drawn_on_its_own_times() -> None:
    """The slow arm is first evaluated at 9 s; the quick one is at the target at 3 s, and is marked there."""
    curves = {"slow": [([0, 9, 27], [0.1, 0.4, 0.8])], "quick": [([0, 1, 3, 27], [0.1, 0.5, 0.8, 0.8])]}
    axes = _accuracy(curves, {"slow": [9, 27], "quick": [1, 3, 27]}, baseline="slow")
    slow, quick = axes.get_lines()[:2]
    assert (slow.get_xdata().tolist(), quick.get_xdata().tolist()) == ([9, 27], [1, 3, 27])
    assert [line.get_xdata().tolist() for line in axes.get_lines()[3:]] == [[3.0], [27.0]]


def test_an_arm_that_never_arrives_says_so_and_has_no_mark() -> None:
    never = SpeedupInterval(point=None, low=0.0, high=0.0, share_unreached=1.0)
    axes = _accuracy({"slow": SLOW, "lost": [([0], [0.1])]}, GRID, baseline="slow", speedups={"lost": never})
    assert len(axes.get_lines()) == 4  # two arms, the target, one mark
    assert "not reached" in _texts(axes)


def test_a_baseline_that_is_never_right_marks_nothing() -> None:
    axes = _accuracy({"a": [([0, 10], [0.0, 0.0])]}, [0, 10], baseline="a")
    assert len(axes.get_lines()) == 2


def test_the_band_is_students_interval_of_the_mean() -> None:
    # Two seeds: 12.706 × std / √2 = 12.706 × (0.2 / √2) / √2 = 1.2706; three seeds 0.4, 0.5, 0.6: 4.303 × 0.1 / √3.
    assert band_half_width(np.array([[0.4], [0.6]])) == pytest.approx([1.2706], rel=1e-4)
    assert band_half_width(np.array([[0.4], [0.5], [0.6]])) == pytest.approx([0.24844], abs=1e-4)
    assert band_half_width(np.array([[0.4]])) == pytest.approx([0.0])
    # 30 degrees of freedom: t is 2.042.
    values = np.linspace(0, 1, 31)[:, None]
    assert band_half_width(values) == pytest.approx(2.042 * values.std(ddof=1) / np.sqrt(31), rel=2e-3)


def test_the_band_stays_between_zero_and_one() -> None:
    (slow, _) = _draw().collections[:2]
    heights = slow.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.0, 1.0)


def test_a_grid_before_training_is_an_error() -> None:
    with pytest.raises(UsageError, match="grid has no time above 0"):
        _accuracy({"slow": SLOW}, [0], baseline="slow")


def test_stage_bars_are_as_long_as_the_seconds() -> None:
    rows = {
        "grpo": {"generate": 0.5, "score": 0.0, "select": 0.0, "update": 1.0, "sync": 0.25, "other": 0.25},
        "pods": {"generate": 1.5, "score": 0.0, "select": 0.0, "update": 0.5, "sync": 0.0, "other": 0.0},
    }
    axes = stage_figure(rows).axes[0]
    bars = {c.get_label(): [(bar.get_x(), bar.get_width()) for bar in c.patches] for c in axes.containers}
    assert bars["generate"] == [(0.0, 0.5), (0.0, 1.5)]
    assert bars["update"] == [(0.5, 1.0), (1.5, 0.5)]
    assert bars["other"] == [(1.75, 0.25), (2.0, 0.0)]
    assert {"2 s", "0.5", "1.5"} <= set(_texts(axes))
    names = sorted((text.xy[1], text.get_text()) for text in axes.texts if text.get_text() in rows)
    assert [name for _, name in names] == ["grpo", "pods"]
    assert all(bar - 0.5 < y < bar for bar, (y, _) in enumerate(names))


def test_token_bars_show_only_fates_that_occurred() -> None:
    row = {"prompt": 1.0, "generated": 100.0, "trained": 25.0, "discarded": 75.0, "skipped": 0.0, "unaccounted": 0.0}
    axes = token_figure({"pods": row}).axes[0]
    assert {c.get_label(): c.patches[0].get_width() for c in axes.containers} == {"trained": 25.0, "discarded": 75.0}


def test_a_comparison_shows_accuracy_time_and_tokens(tmp_path: Path) -> None:
    comparison = read_comparison(write_comparison(tmp_path / "cmp"))
    figure = comparison_figure(comparison)
    accuracy, stages, tokens = figure.axes
    np.testing.assert_allclose(accuracy.get_lines()[0].get_ydata(), [0.125, 0.325, 0.825])
    assert stages.containers[0].patches[0].get_width() == pytest.approx(0.5)
    assert tokens.containers[0].patches[0].get_width() == pytest.approx(40.0)
    assert figure.get_suptitle() == "pods reaches 99 % of grpo's best accuracy 2.00× as fast"
    assert figure.get_supxlabel() == "a laptop, 2 cores"


def test_the_headline_names_no_winner_where_none_arrives(tmp_path: Path) -> None:
    comparison = read_comparison(write_comparison(tmp_path / "cmp"))
    never = SpeedupInterval(point=None, low=0.0, high=0.0, share_unreached=1.0)
    lost = dataclasses.replace(comparison, speedups={**comparison.speedups, "pods": never})
    assert headline(lost).text == "No other arm reaches 99 % of grpo's best accuracy"


def test_a_result_whose_interval_holds_one_says_so_and_is_not_bold(tmp_path: Path) -> None:
    comparison = read_comparison(write_comparison(tmp_path / "cmp"))
    wide = SpeedupInterval(point=1.36, low=0.45, high=4.05, share_unreached=0.0)
    for found, is_clear, weight in ((comparison.speedups["pods"], True, "bold"), (wide, False, "normal")):
        shown = dataclasses.replace(comparison, speedups={**comparison.speedups, "pods": found})
        title = comparison_figure(shown)._suptitle  # type: ignore[attr-defined]  # matplotlib has only its text
        assert headline(shown).is_clear == is_clear and title.get_weight() == weight
        assert ("(0.45–4.05); the interval holds 1" in title.get_text()) != is_clear


def test_a_comparison_in_which_nothing_learned_draws_no_target_and_no_gain(tmp_path: Path) -> None:
    comparison = read_comparison(write_comparison(tmp_path / "cmp"))
    none = dataclasses.replace(comparison, not_learned="no arm has learned within 60 s")
    figure = comparison_figure(none)
    assert figure.get_suptitle() == "no arm has learned within 60 s"
    texts = _texts(figure.axes[0])
    assert not any("×" in text or "best:" in text for text in texts)
    assert any("best:" in text for text in _texts(comparison_figure(comparison).axes[0]))


def test_a_file_is_a_whole_svg_with_the_colours_of_both_modes(tmp_path: Path) -> None:
    seconds = dict.fromkeys(("generate", "score", "select", "update", "sync", "other"), 1.0)
    path = save_svg(stage_figure({"a": seconds}), tmp_path / "x.svg")
    root = ElementTree.parse(path).getroot()
    assert (root.tag, root.get("aria-label")) == ("{http://www.w3.org/2000/svg}svg", "x")
    text = path.read_text()
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", text))
    assert used and all(text.count(f" {name}: ") == 2 for name in used - {"--sans"}), "a value per mode"
    image = re.fullmatch(
        r'<img alt="x" src="data:image/svg\+xml;base64,(\S+)">', svg_image(stage_figure({"a": seconds}), "x")
    )
    assert image is not None and base64.b64decode(image[1]).decode() == text
