"""`python -m benchmarks demo`: its table by hand, and a short run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.demo import markdown, paired


@pytest.fixture
def result() -> dict[str, Any]:
    """Of two seeds."""

    def over(bound: str, ratio: float | None) -> dict[str, Any]:
        interval = {"point": ratio, "low": 0.5, "high": 2.5, "share_unreached": 0.0}
        return {"bound": bound, "ratio": ratio, "ratios": [1.0, 2.0], "interval": interval}

    arms = {"grpo": (16, 16), "grpo_ga": (64, 64), "pods": (64, 16)}
    seconds = {"grpo": [6.0, None], "grpo_ga": [9.0, 9.4], "pods": [4.0, 5.0]}
    to = {"seconds": seconds, "pods_over": {"grpo": over("≥", 1.5), "grpo_ga": over("", 2.0)}}
    return {
        "seconds": 40.0,
        "jobs": 1,
        "arms": {arm: {"num_rollouts": n, "num_kept": m, "seeds": [0, 1]} for arm, (n, m) in arms.items()},
        "stage_seconds": {arm: {"generate": 0.1, "update": 0.25} for arm in arms},
        "mean_accuracy": {arm: [0.1, 0.5] for arm in arms},
        "to": {"0.8": to, "0.9": to},
    }


def test_the_table_has_each_runs_times_and_what_pods_gains_over_its_arm(result: dict[str, Any]) -> None:
    lines = markdown(result).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:5]]
    assert set(cells[1]) == {"---"}
    assert cells[2:] == [
        ["`grpo`", "16 → 16", "0.35", "6, –", "6, –", "≥ 1.50× (0.50–2.50)", "≥ 1.50× (0.50–2.50)", "50.0 %"],
        ["`grpo_ga`", "64 → 64", "0.35", "9, 9", "9, 9", "2.00× (0.50–2.50)", "2.00× (0.50–2.50)", "50.0 %"],
        ["`pods`", "64 → 16", "0.35", "4, 5", "4, 5", "", "", "50.0 %"],
    ]
    assert "2 paired seeds of 40 training seconds" in lines[6]


def test_times_are_those_of_the_first_evaluation_and_a_run_that_misses_it_makes_a_bound(tmp_path: Path) -> None:
    curves = {"grpo": [(0, 0.0), (8, 0.5), (12, 0.6)], "pods": [(0, 0.0), (4, 0.5), (8, 0.9)]}
    for arm, points in curves.items():
        lines = [{"seconds/train_elapsed": seconds, "eval/accuracy": value} for seconds, value in points]
        (tmp_path / arm).mkdir()
        (tmp_path / arm / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = paired({"arms": {arm: {"runs": [arm]} for arm in curves}}, tmp_path)
    assert found["0.5"]["seconds"] == {"grpo": [8], "pods": [4]}
    assert found["0.5"]["pods_over"]["grpo"]["ratio"] == pytest.approx(2.0)
    assert found["0.9"]["seconds"] == {"grpo": [None], "pods": [8]}
    over = found["0.9"]["pods_over"]["grpo"]
    assert over["ratio"] == pytest.approx(12 / 8) and over["bound"] == "≥"


def test_a_quick_result_is_not_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quick", "--save"]) == 2
    assert "--save with --quick" in capsys.readouterr().err


def test_a_quick_run_has_all_arms_times_and_speed_ups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quick", "--json", "--out", str(tmp_path / "demo")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["name"] == "demo" and result["quick"]
    assert set(result["speedup_over"]) == set(result["arms"]) == {"grpo", "grpo_ga", "pods"}
    assert set(result["seconds_to"]) == {"0.5", "0.8", "0.9", "0.95"}
    assert set(result["to"]) == {"0.5", "0.8", "0.9"} and set(result["to"]["0.9"]["pods_over"]) == {"grpo", "grpo_ga"}
    assert result["rates"] == []
    assert (tmp_path / "demo" / "report.html").is_file()
