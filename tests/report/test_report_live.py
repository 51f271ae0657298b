"""The page that follows a run: written only when something is new, whole again after trouble."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.report import live
from podsrl.report.html import write_report
from podsrl.report.live import LivePage, keep_written
from run_folders import group_line, step_line, write_run

NOTHING: dict[str, Any] = {"steps": [], "evaluations": [], "groups": []}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder: Path = write_run(tmp_path / "run", **NOTHING)
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "page.html"


def append(file: Path, line: dict[str, Any]) -> None:
    with file.open("a") as log:
        log.write(json.dumps(line) + "\n")


def test_the_page_says_how_far_a_run_is_and_how_long_the_rest_takes(tmp_path: Path, out: Path) -> None:
    """Steps of 1.5 s, 4 of 40 done: 36 are left, in 54 s."""
    run = write_run(tmp_path / "run", steps=[step_line(step) for step in range(1, 5)])
    (run / "config.toml").write_text((run / "config.toml").read_text() + "[stop]\nsteps = 40\n")
    page = LivePage([run], out)
    page.write()
    bar = '<progress max="1" value="0.1"></progress> step 4 of 40 · 1.5 s per step · 5 rollouts/s · 54 s left'
    assert bar in out.read_text()
    (run / "finished.json").write_text("{}")
    page.write()
    assert "<progress" not in out.read_text() and "the run has ended" in out.read_text()


def test_the_page_is_written_only_where_something_is_new(run: Path, out: Path) -> None:
    page = LivePage([run], out)
    page.write()
    assert "No groups were recorded" in out.read_text()
    out.unlink()
    page.write()
    assert not out.exists()
    append(run / "groups.jsonl", group_line(7))
    page.write()
    assert "step 7" in out.read_text()


def test_a_page_loads_itself_again_while_the_run_goes_on_and_never_another_address(run: Path, out: Path) -> None:
    page = LivePage([run], out)
    page.write()
    reloads = ('http-equiv="refresh"', "data-reload=")
    assert all(word in out.read_text() for word in reloads)
    for word in ("connect-src", "fetch("):
        assert word not in out.read_text()
    page.end()
    assert not any(word in out.read_text() for word in reloads)
    (run / "finished.json").write_text("{}")
    page.write()
    assert not any(word in out.read_text() for word in reloads)


def test_a_log_that_is_broken_for_a_moment_leaves_the_last_page(run: Path, out: Path) -> None:
    page = LivePage([run], out)
    page.write()
    before = out.read_text()
    append(run / "groups.jsonl", group_line(1))
    whole = (run / "groups.jsonl").read_bytes()
    (run / "groups.jsonl").write_bytes(b"not json\n" + whole)
    page.write()
    assert out.read_text() == before and "groups.jsonl, line 1" in page.problem
    (run / "groups.jsonl").write_bytes(whole)
    page.write()
    assert "step 1" in out.read_text() and page.problem == ""


def test_a_folder_that_is_gone_is_said_once_and_the_page_stays(
    run: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's folder is renamed in the first pause; Ctrl-C comes in the third."""

    def stop() -> None:
        raise KeyboardInterrupt

    events = iter([lambda: run.rename(run.with_name("moved")), lambda: None, stop])
    monkeypatch.setattr(live.time, "sleep", lambda seconds: next(events)())
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        keep_written([run], out, lambda: said.append("ready"), said.append)
    assert said[0] == "ready" and len(said) == 2 and "run is no folder" in said[1]
    assert "No groups were recorded" in out.read_text()


def test_a_run_without_a_line_and_a_comparison_without_a_run_have_a_page(tmp_path: Path, run: Path, out: Path) -> None:
    (run / "metrics.jsonl").unlink()
    LivePage([run], out).write()
    assert "No groups were recorded" in out.read_text()
    (tmp_path / "cmp").mkdir()
    (tmp_path / "cmp" / "compare.toml").touch()
    LivePage([tmp_path / "cmp"], out).write()
    assert "no run has begun yet" in out.read_text() and 'http-equiv="refresh"' in out.read_text()


def test_the_pause_grows_with_the_cost_of_drawing(run: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.1, 0.0, 2.0])
    monkeypatch.setattr(live.time, "thread_time", lambda: next(clock))
    page = LivePage([run], out)
    assert [page.write(), page.write()] == [3.0, 10.0]


def test_usage_errors_come_before_anything_is_written(tmp_path: Path, run: Path, out: Path) -> None:
    for folders, target, wanted in (
        ([run, run], out, "given twice"),
        ([tmp_path / "nowhere"], out, "nowhere is no folder"),
        ([run], tmp_path, "is a folder; give the file"),
    ):
        with pytest.raises(UsageError, match=wanted):
            LivePage(folders, target)
    assert not out.exists()


def test_the_last_page_is_that_of_the_report(tmp_path: Path, run: Path, out: Path) -> None:
    LivePage([run], out).end()
    assert out.read_text() == write_report([run], tmp_path / "report.html").read_text()
