"""Runs as they go on: what is new is read, what a resume cut is forgotten, and nothing is touched."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.report import follow
from podsrl.report.follow import FollowedRun, find_runs, state_of
from podsrl.report.read import read_run
from podsrl.run.health import check_run
from podsrl.run.saving.folder import RunFolder
from run_folders import group_line, step_line, write_comparison, write_run


def append(file: Path, *lines: dict[str, Any]) -> None:
    with file.open("a") as log:
        log.writelines(json.dumps(line) + "\n" for line in lines)


def steps_of(followed: FollowedRun) -> list[float]:
    return [line["step"] for line in followed.run.steps]


def test_new_lines_are_taken_in_and_nothing_is_read_where_nothing_is_new(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    followed = FollowedRun(run)
    assert followed.poll() and not followed.poll()
    assert steps_of(followed) == [1, 2]
    assert followed.run.accuracy_curve()[1].tolist() == [0.1, 0.3, 0.5]
    append(run / "metrics.jsonl", step_line(3))
    append(run / "groups.jsonl", group_line(2, "1+1"), group_line(3, "2+2"))
    assert followed.poll()
    assert steps_of(followed) == [1, 2, 3]
    assert [group.task_id for group in followed.run.groups] == ["2+2"]


def test_a_followed_run_says_what_the_whole_logs_say(tmp_path: Path) -> None:
    steps = [step_line(step, **{"rollouts/all": 8, "rollouts/truncated": step % 3}) for step in range(1, 30)]
    followed, whole = FollowedRun(write_run(tmp_path / "run", steps=steps)), read_run(tmp_path / "run")
    followed.poll()
    assert check_run(followed.run) == check_run(whole)
    assert followed.run.stage_seconds() == whole.stage_seconds()
    assert followed.run.tokens() == whole.tokens()


@pytest.mark.parametrize("regrown", [3, 8])
def test_a_log_that_a_resume_cut_back_is_read_anew(tmp_path: Path, regrown: int) -> None:
    """Also where it has already grown beyond its old end."""
    run = write_run(tmp_path / "run", steps=[step_line(step) for step in range(1, 6)])
    followed = FollowedRun(run)
    followed.poll()
    again = [step_line(step, **{"reward/all": 9.0}) for step in range(3, regrown + 1)]
    write_run(run, steps=[step_line(1), step_line(2), *again])
    assert followed.poll()
    assert steps_of(followed) == list(range(1, regrown + 1))
    assert followed.run.series("reward/all")[2:].tolist() == [9.0] * (regrown - 2)


def test_a_line_that_is_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", tail=json.dumps(step_line(3))[:40])
    followed = FollowedRun(run)
    followed.poll()
    assert steps_of(followed) == [1, 2]
    with (run / "metrics.jsonl").open("a") as log:
        log.write(json.dumps(step_line(3))[40:] + "\n")
    followed.poll()
    assert steps_of(followed) == [1, 2, 3]


def test_only_the_newest_steps_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_STEPS", 10)
    followed = FollowedRun(write_run(tmp_path / "run", steps=[step_line(step) for step in range(1, 31)]))
    followed.poll()
    assert steps_of(followed) == list(range(21, 31))
    assert followed.run.steps == read_run(tmp_path / "run").steps[20:]


def test_a_group_of_another_version_is_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", groups=[group_line(1), {"step": 2, "trees": []}])
    followed = FollowedRun(run)
    followed.poll()
    assert followed.run.groups == ()


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


def test_how_long_a_run_is_quiet_comes_from_its_log(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    before = time.time() - 500
    os.utime(run / "metrics.jsonl", (before, before))
    assert 499 < follow.quiet_seconds(run) < 560


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
