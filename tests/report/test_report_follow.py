"""Runs as they go on: what is new is read, what a resume cut is forgotten, and nothing is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.report.follow import Followed
from podsrl.report.read import Run, find_runs, read_run, state_of
from podsrl.run.health import check_run
from podsrl.run.saving.folder import RunFolder
from run_folders import group_line, step_line, write_comparison, write_run


def append(file: Path, *lines: dict[str, Any]) -> None:
    with file.open("a") as log:
        log.writelines(json.dumps(line) + "\n" for line in lines)


def only(followed: Followed) -> Run:
    [run] = followed.runs
    return run


def test_new_lines_are_taken_in_and_nothing_is_read_where_nothing_is_new(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    followed = Followed(run)
    assert followed.poll() and not followed.poll()
    assert only(followed).series("step").tolist() == [1, 2]
    assert only(followed).accuracies() == [0.1, 0.3, 0.5]
    append(run / "metrics.jsonl", step_line(3))
    append(run / "groups.jsonl", group_line(2, "1+1"), group_line(3, "2+2"))
    assert followed.poll()
    assert only(followed).series("step").tolist() == [1, 2, 3]
    assert [group.task_id for group in only(followed).groups] == ["2+2"]


def test_a_followed_run_says_what_the_whole_logs_say(tmp_path: Path) -> None:
    steps = [step_line(step, **{"rollouts/all": 8, "rollouts/truncated": step % 3}) for step in range(1, 30)]
    followed, whole = Followed(write_run(tmp_path / "run", steps=steps)), read_run(tmp_path / "run")
    followed.poll()
    assert check_run(only(followed)) == check_run(whole)
    assert only(followed).tokens() == whole.tokens()


def test_a_line_that_is_no_group_is_left_out(tmp_path: Path) -> None:
    followed = Followed(write_run(tmp_path / "run", groups=[group_line(1), {"step": 2, "trees": []}]))
    followed.poll()
    assert only(followed).groups == ()


def test_the_state_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    if RunFolder(run).is_locked() is None:
        pytest.skip("this system does not list its locks")
    assert state_of(run) == "stopped"
    with RunFolder(run).lock():
        assert state_of(run) == "training"
        (run / "metrics.jsonl").unlink()
        assert state_of(run) == "starting"
        (run / "finished.json").write_text("{}")
        assert state_of(run) == "starting"
    assert state_of(run) == "finished"


def test_folders_of_runs_are_found(tmp_path: Path) -> None:
    run, comparison = write_run(tmp_path / "run"), write_comparison(tmp_path / "cmp")
    assert find_runs(run) == [run]
    assert [path.name for path in find_runs(comparison)] == ["0-3", "0-4", "1-3", "1-4"]
    (tmp_path / "new").mkdir()
    with pytest.raises(UsageError, match=r"new has no config\.toml"):
        find_runs(tmp_path / "new")
    with pytest.raises(UsageError, match="nowhere is no folder"):
        find_runs(tmp_path / "nowhere")
    (tmp_path / "new" / "compare.toml").touch()
    assert find_runs(tmp_path / "new") == []
