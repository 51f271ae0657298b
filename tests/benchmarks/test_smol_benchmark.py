"""`python -m benchmarks smol`: a short run with a small model, and what is drawn of curves by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.smol import draw


def test_a_quick_run_has_the_three_arms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smol", "--quick", "--json", "--out", str(tmp_path / "smol")]) == 0
    result = json.loads(capsys.readouterr().out)
    sizes = {arm: (own["num_rollouts"], own["num_kept"]) for arm, own in result["arms"].items()}
    assert sizes["grpo"] == (16, 16) and sizes["pods"] == (16, 4) and set(sizes) == {"grpo", "pods", "auto"}
    assert set(result["to"]) == {"0.2", "0.4"} and set(result["curves"]) == set(sizes)


def test_the_line_is_the_mean_of_the_seeds_and_ends_with_the_shortest() -> None:
    runs = [[(0.0, 0.0), (10.0, 1.0)], [(0.0, 0.0), (20.0, 1.0)]]
    result = {
        "curves": {"pods": runs},
        "arms": {"pods": {"seeds": [0, 1]}},
        "baseline": "pods",
        "clock": "cpu",
        "hardware": "",
    }
    line = draw(result).axes[0].lines[0]
    seconds, mean = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    assert seconds[-1] == 10.0 and mean[-1] == 0.5 and not mean[:-1].any()
