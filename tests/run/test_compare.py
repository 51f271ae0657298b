"""A comparison: what is planned, what is refused, and a whole small one through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from podsrl.config.load import apply_overrides, build, read_tree
from podsrl.config.schema import CompareConfig
from podsrl.errors import UsageError
from podsrl.run.compare import measure, open_folder, plan


def demo_config(*overrides: str) -> CompareConfig:
    return build(CompareConfig, apply_overrides(read_tree("demo"), overrides), "demo")


def test_runs_go_seed_by_seed_and_an_arm_differs_from_its_base_only_where_it_says(tmp_path: Path) -> None:
    members = plan(demo_config("num_seeds=2", "first_seed=5"), tmp_path)
    assert [member.path.name for member in members] == [
        f"{arm}-seed{seed}" for seed in (5, 6) for arm in ("grpo", "grpo_ga", "pods")
    ]
    sizes = {m.arm: (m.config.rollouts.num_rollouts, m.config.select.num_kept) for m in members}
    assert sizes == {"grpo": (16, 16), "grpo_ga": (64, 64), "pods": (64, 16)}
    assert {m.config.task.digits for m in members} == {2} and {m.config.seed for m in members} == {5, 6}


def test_arms_with_dots_in_their_names_keep_files_apart(tmp_path: Path) -> None:
    tree = read_tree("demo")
    config = build(CompareConfig, {**tree, "arms": {**tree["arms"], "a@0.5": {}, "a@0.6": {}}}, "demo")
    members = plan(config, tmp_path)
    assert len({member.log for member in members}) == len(members) == 10
    with pytest.raises(UsageError, match="arms"):
        build(CompareConfig, {**tree, "arms": {**tree["arms"], "../a": {}}}, "demo")


def test_unequal_training_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="differ"):
        plan(demo_config("arms.pods.stop.seconds=99"), tmp_path)
    with pytest.raises(UsageError, match=r"eval\.every_seconds"):
        plan(demo_config("base.eval.every_seconds=0"), tmp_path)


def test_a_folder_keeps_one_comparison(tmp_path: Path) -> None:
    open_folder(demo_config(), tmp_path)
    open_folder(demo_config("num_seeds=9", "jobs=1"), tmp_path)
    with pytest.raises(UsageError, match=r"base\.task\.digits \(2 -> 3\)"):
        open_folder(demo_config("base.task.digits=3"), tmp_path)


def test_speed_ups_come_from_the_runs_own_logs(tmp_path: Path) -> None:
    """Two seeds written by hand: GA is at its best (80 %) at 30 s, PODS reaches 0.99 of that at 15 s, GRPO never."""
    config = demo_config("num_seeds=2", "base.stop.seconds=40", "base.eval.every_seconds=5")
    members = plan(config, tmp_path)
    accuracies = {"grpo": [0.0, 0.3, 0.5, 0.6], "grpo_ga": [0.0, 0.5, 0.8, 0.8], "pods": [0.0, 0.8, 0.8, 0.9]}
    times = {"grpo": [0, 10, 20, 40], "grpo_ga": [0, 10, 30, 40], "pods": [0, 15, 30, 40]}
    stages = {f"seconds/{name}": 0.1 for name in ("generate", "score", "select", "update", "sync", "record")}
    for member in members:
        member.path.mkdir(parents=True)
        lines = [{"step": 1, "seconds/total": 0.7, "seconds/train_elapsed": 0.7, **stages}]
        for time, accuracy in zip(times[member.arm], accuracies[member.arm], strict=True):
            lines.append({"step": time, "eval/accuracy": accuracy, "seconds/train_elapsed": float(time)})
        (member.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn": ')
    result = measure(config, members, tmp_path)
    assert result["speedup"]["pods"]["point"] == pytest.approx(2.0, rel=0.02)
    assert result["speedup"]["grpo"]["point"] is None and result["speedup"]["grpo"]["share_unreached"] == 1.0
    assert result["speedup"]["grpo_ga"]["point"] == 1.0
    assert result["stage_seconds"]["pods"]["other"] == pytest.approx(0.1)
    assert json.loads((tmp_path / "compare.json").read_text()) == result


@pytest.mark.slow
def test_the_demo_runs_whole_and_a_second_call_finds_it_finished(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "podsrl.cli", "demo", "--quick", "--json", "--out", str(tmp_path / "demo")]
    first = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert first.returncode == 0, first.stderr
    result = json.loads(first.stdout)
    assert set(result["speedup"]) == {"grpo", "grpo_ga", "pods"}
    assert all(steps >= 1 for arm in result["steps"].values() for steps in arm)
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "<svg" in page and "pods" in page
    again = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert json.loads(again.stdout) == result
