"""What a run's folder says of its starts."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from podsrl.lib.machine import hardware_line
from podsrl.run.starts import describe_start
from runs import flags, lines_of


def test_each_start_of_a_run_leaves_a_line_and_the_first_and_last_step_their_groups(pods: Any, tmp_path: Path) -> None:
    sizes = ("rollouts.num_rollouts=4", "select.num_kept=2", "rollouts.max_new_tokens=4", "stop.steps=3")
    assert pods("train", "pods", *flags(*sizes), "--out=run")[0] == 0
    groups, evaluations = lines_of(tmp_path / "run", "groups.jsonl"), lines_of(tmp_path / "run")
    assert [line["step"] for line in groups] == [1, 1, 3, 3]
    examples = [line["eval/examples"] for line in evaluations if "eval/examples" in line]
    assert len(examples) == 2
    first, last = ([{**one, "text": "", "is_correct": None} for one in each] for each in examples)
    assert first == last and len(first) == 4
    assert pods("train", "--resume", "run", "--stop.steps=4")[0] == 0
    starts = lines_of(tmp_path / "run", "starts.jsonl")
    assert [start["step"] for start in starts] == [0, 3]
    assert all(start["hardware"] == hardware_line() and start["commit"] is None for start in starts)


def test_a_start_names_its_command_its_commit_and_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/pods", "train", "--out", "my runs"])
    monkeypatch.chdir(tmp_path)
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-mx"],
    ):
        subprocess.run(["git", *words], check=True)
    start = describe_start(7)
    assert start["step"] == 7 and start["command"] == "pods train --out 'my runs'"
    assert abs((datetime.now(UTC) - datetime.fromisoformat(start["date"])).total_seconds()) < 600
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert len(start["commit"]) == 10 and head.startswith(start["commit"])
    (tmp_path / "a").write_text("")
    subprocess.run(["git", "add", "a"], check=True)
    assert describe_start(0)["commit"] == f"{start['commit']} with changes"
