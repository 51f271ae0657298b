"""Small figures of runs: the lines hold the metrics, several runs keep their colours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podsrl.report.figures.bars import mean_stages, token_ledger, tokens_per_step
from podsrl.report.figures.run import run_figures, smooth
from podsrl.report.figures.theme import BASELINE, SERIES
from podsrl.report.read import read_run

Make = Callable[..., Any]


def test_one_run_shows_each_metric_over_its_steps(tmp_path: Path, make_run: Make) -> None:
    figures = run_figures({"run": [read_run(make_run(tmp_path / "run"))]})
    assert list(figures) == [
        *("accuracy", "reward", "reward_std", "train_accuracy", "length", "entropy", "grad_norm"),
        *("zero_signal", "logprob_gap", "seconds", "tokens"),
    ]
    (accuracy,) = figures["accuracy"].axes[0].get_lines()
    assert (accuracy.get_xdata().tolist(), accuracy.get_ydata().tolist()) == ([0.0, 1.5, 3.0], [0.1, 0.3, 0.5])
    lines = figures["reward"].axes[0].get_lines()  # all: faint, bold; kept: faint, bold
    assert [line.get_ydata().tolist() for line in lines] == [[0.25, 0.5], [0.25, 0.5], [0.5, 0.5], [0.5, 0.5]]
    assert [line.get_alpha() for line in lines] == [0.3, None, 0.3, None]
    assert [text.get_text() for text in figures["reward"].axes[0].texts] == ["all", "kept"]


def test_several_runs_lie_over_each_other_in_their_colours(tmp_path: Path, make_run: Make, make_step: Make) -> None:
    first = read_run(make_run(tmp_path / "a"))
    second = read_run(make_run(tmp_path / "b", steps=[make_step(1, entropy=0.9)]))
    figures = run_figures({"grpo": [first], "pods": [second, second]}, baseline="grpo")
    lines = figures["entropy"].axes[0].get_lines()
    assert [line.get_ydata().tolist() for line in lines] == [[0.5, 0.5], [0.9], [0.9]]
    assert [line.get_color() for line in lines] == [BASELINE, SERIES[0], SERIES[0]]
    assert [text.get_text() for text in figures["entropy"].axes[0].texts] == ["grpo", "pods"]
    unnamed = run_figures({"grpo": [first], "pods": [second]}, has_names=False)
    assert not unnamed["entropy"].axes[0].texts


def test_a_figure_without_numbers_is_left_out(tmp_path: Path, make_run: Make, make_step: Make) -> None:
    run = read_run(make_run(tmp_path / "run", steps=[make_step(1, entropy=None)], evaluations=[]))
    figures = run_figures({"run": [run]})
    assert "entropy" not in figures
    assert "accuracy" not in figures
    assert "reward" in figures
    assert run_figures({"run": [read_run(make_run(tmp_path / "empty", steps=[], evaluations=[]))]}) == {}


def test_smoothing_is_a_mean_over_the_last_twentieth_and_skips_what_is_missing() -> None:
    values = np.full(60, np.nan)
    values[:6] = [3.0, 6.0, np.nan, 12.0, 0.0, 6.0]
    expected = [3.0, 4.5, 4.5, 9.0, 6.0, 6.0, 3.0, 6.0]
    assert smooth(values)[:8].tolist() == expected
    assert np.isnan(smooth(values)[8:]).all()
    assert smooth(np.array([1.0, 5.0])).tolist() == [1.0, 5.0]


def test_ledgers_add_up_and_name_what_is_unaccounted(tmp_path: Path, make_run: Make, make_step: Make) -> None:
    whole = read_run(make_run(tmp_path / "a"))
    leaky = read_run(make_run(tmp_path / "b", steps=[make_step(1, **{"tokens/skipped": 3})]))
    ledger = token_ledger([whole, leaky])
    assert ledger == {
        "prompt": 36,
        "generated": 240,
        "trained": 120,
        "discarded": 90,
        "skipped": 23,
        "unaccounted": 7,
    }
    assert tokens_per_step([whole, leaky])["generated"] == 80.0


def test_stage_seconds_of_runs_are_averaged(tmp_path: Path, make_run: Make, make_step: Make) -> None:
    first = read_run(make_run(tmp_path / "a"))
    second = read_run(make_run(tmp_path / "b", steps=[make_step(1, **{"seconds/update": 1.0, "seconds/total": 1.9})]))
    assert mean_stages([first, second])["update"] == pytest.approx(0.8)
