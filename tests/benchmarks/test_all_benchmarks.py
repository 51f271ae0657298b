"""`python -m benchmarks all`: what runs, what is left out and why, and that it goes on where it stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import everything, files
from benchmarks.everything import Outcome, main, run_all, run_one
from podsrl.errors import PodsError
from waiting import SECONDS, is_alive, wait_for

HERE = "abc0123456"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results and logs of the tests' own, on a commit of which the files below are."""
    monkeypatch.setattr(files, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(everything, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(files, "commit", lambda revision="HEAD": HERE)
    monkeypatch.setattr(files, "has_changes", lambda: False)
    monkeypatch.setattr(files, "git", lambda *arguments: "" if arguments[-1] == HERE else None)
    return tmp_path


def save(name: str, commit: str = HERE, processor: str | None = None) -> None:
    path = files.path_of(name, processor)
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"name": name, "processor": processor or "abacus", "commit": commit, "date": "2026-01-02"}
    path.write_text(json.dumps(result))


def test_what_has_a_file_of_the_commit_is_left_out_and_the_rest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    save("select")
    save("floor", commit="old")
    ran: list[str] = []
    monkeypatch.setattr(everything, "run_one", lambda name, *rest: ran.append(name) or Outcome(name, "done", 1.0))
    outcomes = run_all(["floor", "select", "update"], HERE, is_quick=False)
    assert ran == ["floor", "update"]
    [skipped] = [outcome for outcome in outcomes if outcome.state == "skipped"]
    assert skipped.name == "select" and HERE in skipped.why


def test_a_benchmark_of_a_gpu_has_its_file_in_the_gpu_s_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everything, "has_gpu", lambda: True)
    monkeypatch.setattr(files, "device_name", lambda device: {"cuda": "Some GPU 7"}[device])
    save("halves")
    assert everything.why_not("halves", HERE, is_quick=False) == ""
    save("halves", processor="Some GPU 7")
    assert HERE in everything.why_not("halves", HERE, is_quick=False)
    monkeypatch.setattr(everything, "has_gpu", lambda: False)
    assert everything.why_not("halves", HERE, is_quick=False) == "needs a GPU"


def test_what_fails_is_named_at_the_end_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = {"select": "failed", "floor": "done"}
    whys = {"select": "a cause", "floor": ""}
    monkeypatch.setattr(everything, "run_one", lambda name, *rest: Outcome(name, states[name], 1.0, whys[name]))
    with pytest.raises(PodsError, match="1 failed: select"):
        main(["--quick", "--only", "select", "floor"])
    printed = capsys.readouterr().out
    assert "select failed: a cause" in printed and "floor" in printed


def test_a_benchmark_runs_in_a_process_of_its_own_and_says_why_it_ends(folders: Path) -> None:
    assert run_one("select", ["--quick", "--json"], "text").state == "done"
    assert json.loads((folders / "logs" / "select.log").read_text().partition("{")[2].join(["{", ""]))
    refused = run_one("select", ["--quick", "--save"], "text")
    assert refused.state == "skipped" and "--save with --quick" in refused.why


def test_ctrl_c_ends_the_benchmark_too(tmp_path: Path) -> None:
    program = f"""
import runpy, sys
from pathlib import Path
from benchmarks import everything
everything.LOGS = Path({str(tmp_path)!r})
sys.argv = ["benchmarks", "all", "--quick", "--only", "update"]
runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
"""
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, cwd=files.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    log = tmp_path / "update.log"
    wait_for(lambda: log.exists() and log.stat().st_size)  # the benchmark works, and no git is asked any more
    started = [child.pid for child in psutil.Process(process.pid).children()]
    assert started
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 130 and not any(map(is_alive, started))
