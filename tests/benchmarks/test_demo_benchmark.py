"""`python -m benchmarks demo`: its table by hand, and a short run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.demo import markdown


@pytest.fixture
def result() -> dict[str, Any]:
    """Of two seeds."""

    def interval(point: float | None) -> dict[str, Any]:
        return {"point": point, "low": 0.5, "high": 2.5, "share_unreached": 0.0}

    arms = {"grpo": (16, 16), "grpo_ga": (64, 64), "pods": (64, 16)}
    return {
        "fraction": 0.95,
        "seconds": 40.0,
        "jobs": 1,
        "hardware": "an abacus",
        "arms": {arm: {"num_rollouts": n, "num_kept": m, "seeds": [0, 1]} for arm, (n, m) in arms.items()},
        "stage_seconds": {arm: {"generate": 0.1, "update": 0.25} for arm in arms},
        "seconds_to": {"0.5": {"grpo": 6.0, "grpo_ga": 9.0, "pods": 4.04}, "0.9": dict.fromkeys(arms)},
        "speedup_over": {
            "grpo": {"pods": interval(1.5)},
            "grpo_ga": {"pods": interval(None)},
            "pods": {"pods": interval(1)},
        },
    }


def test_the_table_has_each_arms_times_and_what_pods_gains_over_it(result: dict[str, Any]) -> None:
    lines = markdown(result).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:5]]
    assert cells[0][3:5] == ["to 50 %", "to 90 %"] and set(cells[1]) == {"---"}
    assert cells[2:] == [
        ["`grpo`", "16 → 16", "0.35", "6.0 s", "–", "1.50× (0.50–2.50)"],
        ["`grpo_ga`", "64 → 64", "0.35", "9.0 s", "–", "not reached"],
        ["`pods`", "64 → 16", "0.35", "4.0 s", "–", ""],
    ]
    assert "2 paired seeds" in lines[6]


def test_a_quick_result_is_not_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quick", "--save"]) == 2
    assert "--save with --quick" in capsys.readouterr().err


@pytest.mark.slow
def test_a_quick_run_has_all_arms_times_and_speed_ups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quick", "--seeds", "1", "--json", "--out", str(tmp_path / "demo")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["name"] == "demo" and result["quick"]
    assert set(result["speedup_over"]) == set(result["arms"]) == {"grpo", "grpo_ga", "pods"}
    assert set(result["seconds_to"]) == {"0.5", "0.8", "0.9", "0.95"}
    assert (tmp_path / "demo" / "report.html").is_file()
