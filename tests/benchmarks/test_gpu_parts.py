"""`python -m benchmarks gpu`: the parts' order and limits, and that each goes on where it was ended."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import everything, files, halves
from benchmarks.__main__ import main
from benchmarks.everything import Outcome, end, run_one
from benchmarks.gpu import checks, parts
from podsrl.errors import PodsError, UsageError
from podsrl.lib.logs import read_lines
from waiting import wait_for

HERE = "abc0123456"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(everything, "LOGS", tmp_path / "logs")


def options(**changes: Any) -> Namespace:
    return Namespace(**{"seconds": None, "model": None, "quick": False, **changes})


def test_parts_run_in_order_within_their_limits_and_one_with_a_result_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, ran = [0.0], []

    def run(name: str, words: list[str], text: str, seconds: float) -> Outcome:
        ran.append((name, seconds))
        now[0] += min(seconds, 100.0)
        return Outcome(name, "done", 1.0)

    monkeypatch.setattr(everything, "run_one", run)
    monkeypatch.setattr(everything, "has_gpu", lambda: True)
    monkeypatch.setattr(files, "device_name", lambda device: "Some GPU 7")
    monkeypatch.setattr(files, "commit", lambda revision="HEAD": HERE)
    monkeypatch.setattr(parts.time, "monotonic", lambda: now[0])
    file = files.path_of("gpu-demo", "Some GPU 7")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"name": "gpu-demo", "processor": "Some GPU 7", "commit": HERE, "minutes": 1.0}))
    outcomes = parts.run_parts([*parts.PARTS], options(seconds=280.0))
    assert ran == [("gpu-tests", 240), ("gpu-gsm8k", 150), ("engine-gpu", 50)]  # 30 of the 280 are for saving
    assert [outcome.name for outcome in outcomes if outcome.state == "skipped"] == ["gpu-demo", "halves"]
    assert HERE in outcomes[1].why and outcomes[4].why == "no time is left; the same command runs it"
    ran.clear()
    parts.run_parts(["demo", "halves"], options(quick=True))
    assert ran == [("gpu-demo", 600), ("halves", 400)]


def test_without_a_gpu_only_a_trial_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(everything, "has_gpu", lambda: False)
    monkeypatch.setattr(files, "has_changes", lambda: False)
    monkeypatch.setattr(files, "commit", lambda revision="HEAD": HERE)
    parts.main(["--only", "demo"])
    assert capsys.readouterr().out == "gpu-demo skipped: needs a GPU\n"
    monkeypatch.setattr(files, "has_changes", lambda: True)
    with pytest.raises(UsageError, match="PODS_COMMIT"):
        parts.main([])
    with pytest.raises(UsageError, match="30 of them are for saving"):
        parts.main(["--quick", "--seconds", "30"])


def test_a_copy_without_git_takes_its_commit_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "git", lambda *arguments: None)
    monkeypatch.delenv(files.COMMIT, raising=False)
    assert files.commit() is None and files.has_changes() is None
    monkeypatch.setenv(files.COMMIT, HERE)
    stamp = files.stamp("some-name", {})
    assert (stamp["commit"], stamp["has_changes"]) == (HERE, None)


def test_a_trial_saves_nothing_and_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "--quick", "--only", "tests", "halves"]) == 0
    said = capsys.readouterr().out
    assert "gpu-tests done" in said and "halves done" in said and "This was a trial at tiny sizes" in said
    assert not (tmp_path / "results").exists()
    assert "skipped" in (tmp_path / "logs" / "gpu-tests.log").read_text()


def test_a_part_that_is_over_its_limit_is_ended_and_is_no_failure(tmp_path: Path) -> None:
    found = run_one("gpu-demo", ["--quick", "--out", str(tmp_path / "demo")], "text", seconds=0.5)
    assert found.state == "stopped" and found.why == "its 0.5 s ran out; the same command continues it"


def test_a_comparison_that_was_ended_midway_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, run = ["gpu-demo", "--quick", "--seconds", "8", "--out", str(tmp_path / "demo")], tmp_path / "demo/runs"
    command = [sys.executable, "-m", "benchmarks", *words]
    child = subprocess.Popen(command, cwd=files.ROOT, stderr=subprocess.PIPE, start_new_session=True)
    log = run / "grpo-seed0/metrics.jsonl"
    wait_for(lambda: child.poll() is not None or any("seconds/total" in line for line in read_lines(log)))
    end(child)
    assert child.stderr is not None and b"interrupted; every run has saved a checkpoint" in child.stderr.read()
    child.stderr.close()
    steps = len(read_lines(log))
    assert child.returncode == 143 and not (run / "grpo-seed0/finished.json").exists()
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.startswith("A trial of the command") and said.count("\n| ") == 4
    first, second = read_lines(run / "grpo-seed0/starts.jsonl")
    assert 0 < second["step"] <= steps and first["step"] == 0
    assert (tmp_path / "demo/report.html").is_file()


def test_a_measurement_of_speed_keeps_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["halves", "--shapes", "s128", "--rollouts", "2", "--kept", "1", "2", "--new-tokens", "3", "--repeats", "1"]
    words += ["--micro-batches", "64", "--json", "--out", str(tmp_path)]
    update = halves._updates

    def ended(model: Any, num_kept: int, *rest: Any) -> Any:
        if num_kept == 2:
            raise KeyboardInterrupt
        return update(model, num_kept, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(halves, "_updates", ended)
        assert main(words) == 130
    monkeypatch.setattr(halves, "_generated", None)  # not measured again
    monkeypatch.setattr(halves, "_updates", lambda model, m, *rest: update(model, m, *rest) if m == 2 else None)
    assert main(words) == 0
    lines = read_lines(tmp_path / "finished.jsonl")
    assert [line["key"].partition(" {")[0] for line in lines] == ["s128, generation", "s128, m = 1", "s128, m = 2"]


def test_tests_that_have_passed_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "test_two.py"
    file.write_text(
        "import pytest\nfrom pathlib import Path\nhere = Path(__file__).parent\npytestmark = pytest.mark.gpu\n"
        "def test_a() -> None:\n    with (here / 'ran').open('a') as ran:\n        ran.write('a')\n"
        "def test_b() -> None:\n    assert (here / 'cured').exists()\n"
        "def test_c() -> None:\n    pytest.skip('no reason')\n"
    )
    monkeypatch.setattr(checks, "FOLDERS", (str(file),))
    asked = Namespace(quick=False, out=tmp_path / "out")
    with pytest.raises(PodsError, match=r"test_b failed with exit code 1"):
        checks.run(asked, lambda text: None)
    (tmp_path / "cured").touch()
    result = checks.run(asked, lambda text: None)
    assert (tmp_path / "ran").read_text() == "a"
    assert (result["passed"], result["skipped"], result["why_skipped"]) == (2, 1, {"Skipped: no reason": 1})
    assert checks.table(result).endswith("1 were skipped (1: Skipped: no reason)")
