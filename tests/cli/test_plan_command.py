"""`pods plan` as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from early_lines import EARLY

import children
from podsrl.cli.plan import _write
from podsrl.config.load import load_config
from podsrl.errors import PodsError

ENVIRONMENT = {**os.environ, "COLUMNS": "160", "OMP_NUM_THREADS": "1"}


def run_pods(*arguments: str, folder: Path) -> children.CompletedProcess[str]:
    command = [sys.executable, "-m", "podsrl.cli", *arguments]
    return children.run(command, capture_output=True, text=True, cwd=folder, env=ENVIRONMENT)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["plan", "pods", "--measure", "0"], "measure = 0: wanted seconds above 0"),
        (["plan", "pods", "--plot", "map.gif"], "--plot map.gif: wanted a file that ends in .png"),
        (["plan", "pods", "--write", "mine.txt"], "--write mine.txt: wanted a new file that ends in .toml"),
        (["plan", "pods", "--write", "no/mine.toml"], "--write no/mine.toml: wanted a new file"),
        (["plan", "."], ". is a folder, and pods plan wants a CONFIG"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], wanted: str, pods: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, _, errors = pods(*arguments)
    assert code == 2, errors
    assert errors.startswith("error: ") and errors.count("\n") == 1 and wanted in errors
    assert list(tmp_path.iterdir()) == []


def test_a_plan_measures_suggests_and_draws(tmp_path: Path) -> None:
    options = ["--rollouts.num_prompts=4", "--rollouts.num_rollouts=16", "--select.num_kept=8"]
    wanted = ["--json", "--plot", "map.png", "--write", "mine.toml"]
    done = run_pods("plan", "pods", "--measure", "8", *wanted, *options, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [result["own"][name] for name in ("num_rollouts", "num_kept")] == [16, 8]
    best = max(result["candidates"], key=lambda c: c["progress"])
    assert result["best"]["progress"] >= best["progress"] / 1.03
    assert result["own"]["relative_progress"] == 1.0
    assert 0 < result["pass_rate"] < 0.3  # the model's start accuracy is 4 %; a busy machine sees few answers
    low, high = result["noise_range"] or (0, 0)
    assert 0 <= low <= high and (result["noise_range"] is None or result["is_noise_measured"])
    assert result["is_noise_measured"] == (result["noise_ratio"] != 0.8) and result["noise_ratio"] >= 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.png", "mine.toml"]
    config = load_config(tmp_path / "mine.toml")
    assert config.costs is not None and config.costs.row_ms == result["costs"]["row_ms"] > 0
    assert config.model_copy(update={"costs": None}) == load_config("pods", options)


def test_costs_that_are_not_known_are_not_written_and_the_message_says_why(tmp_path: Path) -> None:
    with pytest.raises(PodsError, match=r"--write .*mine\.toml: .* trained on as many rows.*--measure"):
        _write(tmp_path / "mine.toml", "pods", [], {"costs": None})
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_plan_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    command = [*EARLY, "plan", "pods", "--measure", "300"]
    process = children.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=children.PIPE, stderr=children.PIPE)
    assert process.stderr is not None
    while (line := process.stderr.readline()) and b"%" not in line:  # it loads
        pass
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert output == b"" and b"interrupted" in errors and b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
