"""`python -m benchmarks demo`: times and ratios by hand, and a short run of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.demo import paired


def test_times_are_those_of_the_first_evaluation_and_a_run_that_misses_it_makes_a_bound() -> None:
    found = paired({"grpo": [[(0, 0.0), (8, 0.5), (12, 0.6)]], "pods": [[(0, 0.0), (4, 0.5), (8, 0.9)]]})
    assert found["0.5"]["seconds"] == {"grpo": [8], "pods": [4]}
    assert found["0.5"]["pods_over"]["grpo"]["ratio"] == pytest.approx(2.0)
    assert found["0.9"]["seconds"] == {"grpo": [None], "pods": [8]}
    over = found["0.9"]["pods_over"]["grpo"]
    assert over["ratio"] == pytest.approx(12 / 8) and over["bound"] == "≥"


def test_a_quick_run_has_all_arms_times_and_speed_ups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quick", "--json", "--out", str(tmp_path / "demo")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["name"] == "demo" and result["quick"]
    assert set(result["speedup_over"]) == set(result["arms"]) == {"grpo", "grpo_ga", "pods", "auto"}
    assert set(result["seconds_to"]) == {"0.5", "0.8", "0.9", "0.95"}
    assert set(result["to"]) == {"0.5", "0.8", "0.9"}
    assert set(result["to"]["0.9"]["pods_over"]) == {"grpo", "grpo_ga", "auto"}
    assert result["rates"] == []
    assert [len(runs) for runs in result["curves"].values()] == [1] * 4
    for [points] in result["curves"].values():
        assert points[0][0] == 0.0 and all(0 <= accuracy <= 1 for _, accuracy in points)
    assert (tmp_path / "demo" / "report.html").is_file()
