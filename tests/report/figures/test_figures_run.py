"""Small figures of runs: the lines hold the metrics, several runs keep their colours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from podsrl.report.figures.bars import mean_stages, token_ledger, tokens_per_step
from podsrl.report.figures.run import run_figures, smooth
from podsrl.report.figures.theme import BASELINE, SERIES
from podsrl.report.read import read_run
from run_folders import CONFIG, step_line, write_run


def test_one_run_shows_each_metric_over_its_steps(tmp_path: Path) -> None:
    figures = run_figures({"run": [read_run(write_run(tmp_path / "run"))]})
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


HISTOGRAMS = {
    "histogram/rewards": {"low": 0.0, "high": 1.0, "counts": [3, *[0] * 18, 1]},
    "histogram/rewards_kept": {"low": 0.0, "high": 1.0, "counts": [1, *[0] * 18, 1]},
    "histogram/lengths": {"low": 0.0, "high": 4.0, "counts": [2, 2]},
    "histogram/advantages": {"low": 0.0, "high": 0.0, "counts": [2]},
}
EQUAL = {"histogram/rewards": {"low": 1.0, "high": 1.0, "counts": [4]}, "histogram/rewards_kept": None}


def test_the_rewards_of_each_step_stand_over_those_that_were_trained_on(tmp_path: Path) -> None:
    """Three of four wrong in step 1, one of two of the kept; in step 2 all right, and nothing kept."""
    run = read_run(write_run(tmp_path / "run", steps=[step_line(1, **HISTOGRAMS), step_line(2, **HISTOGRAMS | EQUAL)]))
    figures = run_figures({"run": [run]})
    generated, trained = figures["rewards"].axes
    wrong, right = (band.get_paths()[0].vertices for band in generated.collections)
    assert {tuple(corner) for corner in wrong.tolist()} >= {(0.5, 0.0), (0.5, 0.75), (1.5, 0.75), (1.5, 0.0)}
    assert {tuple(corner) for corner in right.tolist()} >= {(0.5, 0.75), (1.5, 0.0), (2.5, 0.0), (2.5, 1.0)}
    assert [band.get_paths()[0].vertices[:, 1].max() for band in trained.collections] == [0.5, 1.0]
    light, dark = (band.get_alpha() for band in generated.collections)
    assert light < dark
    lengths = figures["lengths"].axes[0]
    assert lengths.get_lines()[0].get_ydata().tolist() == [2.0, 2.0]
    everything, half = (band.get_paths()[0].vertices[:, 1] for band in lengths.collections)
    assert (everything.min(), everything.max(), half.min(), half.max()) == (0.0, 4.0, 1.0, 3.0)
    assert figures["advantages"].axes[0].get_lines()[0].get_ydata().tolist() == [0.0, 0.0]
    assert "rewards" not in run_figures({"a": [run], "b": [run]})


def test_each_reward_function_has_its_figure(tmp_path: Path) -> None:
    values = {"rewards/form/mean": 0.5, "rewards/form/std": 0.25, "lr": 0.001, "clip_fraction": 0.0}
    figures = run_figures({"run": [read_run(write_run(tmp_path / "run", steps=[step_line(1, **values)]))]})
    axes = figures["reward_function_0"].axes[0]
    assert axes.get_title(loc="left") == "Reward function form"
    assert [line.get_ydata().tolist() for line in axes.get_lines()[1::2]] == [[0.25], [0.5]]
    assert [text.get_text() for text in axes.texts] == ["std", "mean"]
    assert "lr" in figures and "clip_fraction" not in figures


def test_each_kind_of_question_with_levels_has_its_figure(tmp_path: Path) -> None:
    steps = [step_line(step, **{"level/gcd": float(step // 2), "level/": 3.0}) for step in (1, 2, 3)]
    figures = run_figures({"run": [read_run(write_run(tmp_path / "run", steps=steps))]})
    found = [figures[f"level_{place}"].axes[0] for place in (0, 1)]
    assert [axes.get_title(loc="left") for axes in found] == ["Level of gcd", "Level"]
    assert [axes.get_lines()[-1].get_ydata().tolist() for axes in found] == [[0.0, 1.0, 1.0], [3.0, 3.0, 3.0]]


def test_shares_stay_within_0_and_100_percent_and_ticks_are_whole_steps(tmp_path: Path) -> None:
    steps = [step_line(step, **{"accuracy/all": step - 1.0, "groups/zero_signal": 0}) for step in (1, 2)]
    run = read_run(write_run(tmp_path / "run", steps=steps, evaluations=[(0, 0.0, 0.0), (2, 3.0, 1.0)]))
    figures = run_figures({"run": [run]})
    for name in ("accuracy", "train_accuracy", "zero_signal"):
        low, high = figures[name].axes[0].get_ylim()
        assert low == 0.0 and high <= 1.0
    for name in ("train_accuracy", "reward", "entropy"):
        ticks = figures[name].axes[0].xaxis.get_major_locator().tick_values(0.95, 2.05)
        assert all(tick == round(tick) for tick in ticks)


def test_steps_of_other_sizes_show_what_was_generated_and_trained_of_a_question_and_why(tmp_path: Path) -> None:
    sizes = [(8, 4, 1), (16, 6, 2)]
    steps = [
        step_line(place, **{"rollouts/all": n, "rollouts/kept": m, "groups/mixed": mixed, "groups/left_out": 0})
        for place, (n, m, mixed) in enumerate(sizes, start=1)
    ]
    for num_chunks in (1, 2):  # of 2 groups, or of one in two chunks
        config = CONFIG.replace("num_kept = 2\n", f"num_kept = 2\nnum_chunks = {num_chunks}\n")
        figures = run_figures({"run": [read_run(write_run(tmp_path / f"{num_chunks}", steps=steps, config=config))]})
        lines = [line for name in ("sizes", "mixed") for line in figures[name].axes[0].get_lines()[1::2]]
        wanted = [[4.0, 8.0], [2.0, 3.0], [0.5, 1.0]]
        assert [line.get_ydata().tolist() for line in lines] == [[num_chunks * y for y in line] for line in wanted]
    equal = [step_line(step, **{"rollouts/kept": 4, "groups/mixed": step}) for step in (1, 2)]
    assert not {"sizes", "mixed"} & run_figures({"run": [read_run(write_run(tmp_path / "b", steps=equal))]}).keys()


def test_several_runs_lie_over_each_other_in_their_colours(tmp_path: Path) -> None:
    first = read_run(write_run(tmp_path / "a"))
    second = read_run(write_run(tmp_path / "b", steps=[step_line(1, entropy=0.9)]))
    figures = run_figures({"grpo": [first], "pods": [second, second]}, baseline="grpo")
    lines = figures["entropy"].axes[0].get_lines()
    assert [line.get_ydata().tolist() for line in lines] == [[0.5, 0.5], [0.9], [0.9]]
    assert [line.get_color() for line in lines] == [BASELINE, SERIES[0], SERIES[0]]
    assert not figures["entropy"].axes[0].texts, "the page says which colour is whose"


def test_a_figure_without_numbers_is_left_out(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", steps=[step_line(1, entropy=None)], evaluations=[]))
    figures = run_figures({"run": [run]})
    assert "entropy" not in figures
    assert "accuracy" not in figures
    assert "reward" in figures
    assert run_figures({"run": [read_run(write_run(tmp_path / "empty", steps=[], evaluations=[]))]}) == {}


def test_smoothing_is_a_mean_over_the_last_twentieth_and_skips_what_is_missing() -> None:
    values = np.full(60, np.nan)
    values[:6] = [3.0, 6.0, np.nan, 12.0, 0.0, 6.0]
    expected = [3.0, 4.5, 4.5, 9.0, 6.0, 6.0, 3.0, 6.0]
    assert smooth(values)[:8].tolist() == expected
    assert np.isnan(smooth(values)[8:]).all()
    assert smooth(np.array([1.0, 5.0])).tolist() == [1.0, 5.0]


def test_ledgers_add_up_and_name_what_is_unaccounted(tmp_path: Path) -> None:
    whole = read_run(write_run(tmp_path / "a"))
    leaky = read_run(
        write_run(
            tmp_path / "b", steps=[step_line(1, **{"tokens/skipped": 0, "tokens/pruned": 2, "tokens/postponed": 1})]
        )
    )
    ledger = token_ledger([whole, leaky])
    assert ledger == {
        "prompt": 36,
        "generated": 240,
        "trained": 120,
        "discarded": 90,
        "skipped": 20,
        "pruned": 2,
        "postponed": 1,
        "unaccounted": 7,
    }
    assert tokens_per_step([whole, leaky])["generated"] == 80.0


def test_stage_seconds_of_runs_are_averaged(tmp_path: Path) -> None:
    first = read_run(write_run(tmp_path / "a"))
    second = read_run(write_run(tmp_path / "b", steps=[step_line(1, **{"seconds/update": 1.0, "seconds/total": 1.9})]))
    assert mean_stages([first, second])["update"] == pytest.approx(0.8)
