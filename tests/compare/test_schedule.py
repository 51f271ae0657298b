"""Whose turn it is in a comparison, by hand: runs are told what their logs say, and no process is started."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from podsrl.compare import schedule
from podsrl.compare.runs import Member, plan
from podsrl.compare.schedule import RunFailed
from podsrl.config.load import build
from podsrl.config.schema import CompareConfig

GIB = 2**30
OWN_BYTES = 2 * GIB
"""That each run holds."""


class FakeProcess:
    """What a run's process is told, and whether it stands still."""

    def __init__(self, member: Member) -> None:
        self.member, self.pid = member, 1
        self.told: list[int] = []
        self.is_stopped, self.code = False, None

    def send_signal(self, number: int) -> None:
        self.told.append(number)

    def stop(self) -> None:
        """It stands still, as it was asked to."""
        assert self.told[-1] == signal.SIGTSTP
        self.is_stopped = True

    def end(self, code: int) -> None:
        self.code = code  # type: ignore[assignment]


class Comparison:
    """Two arms on two seeds, in slices of 10 seconds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, jobs: int = 1, num_arms: int = 2) -> None:
        base = {"stop": {"seconds": 60}, "eval": {"every_seconds": 5}, "model": {"device": "cpu"}}
        arms = {name: {"optim": {"lr": 1e-4 * i}} for i, name in enumerate("abc"[:num_arms], start=1)}
        config = build(CompareConfig, {"baseline": "a", "num_seeds": 2, "base": base, "arms": arms}, "made")
        self.left, self.jobs = plan(config, folder), jobs
        self.named = {member.path.name: member for member in self.left}
        self.runs: dict[Member, schedule._Run] = {}
        self.started: list[str] = []
        self.available = 100 * GIB
        monkeypatch.setattr(schedule, "_spawn", self._spawn)
        monkeypatch.setattr(schedule, "available_bytes", lambda: self.available)
        monkeypatch.setattr(schedule, "host_bytes", lambda: 100 * GIB)
        monkeypatch.setattr(schedule, "resident_bytes", lambda pid: OWN_BYTES)
        monkeypatch.setattr(schedule.sys, "platform", "linux")

    def _spawn(self, member: Member, num_processes: int) -> FakeProcess:
        member.path.mkdir(parents=True, exist_ok=True)
        self.started.append(member.path.name)
        return FakeProcess(member)

    def process(self, name: str) -> FakeProcess:
        return self.runs[self.named[name]].process  # type: ignore[return-value]

    def told(self, name: str) -> list[int]:
        return self.process(name).told

    def trained(self, name: str, seconds: float) -> None:
        log = self.named[name].path / "metrics.jsonl"
        log.write_text(json.dumps({"step": 1, "seconds/train_elapsed": seconds}) + "\n")

    def starts_took(self, name: str, seconds: float) -> None:
        file = self.named[name].path / "starts.jsonl"
        file.touch()
        began = self.runs[self.named[name]]._began
        os.utime(file, (began + seconds, began + seconds))

    def finished(self, name: str) -> None:
        (self.named[name].path / "finished.json").touch()
        self.process(name).end(0)

    def look(self) -> None:
        schedule._take_away(self.left, self.runs)
        schedule._take_turns(self.left, self.runs, self.jobs, 10.0, 1)


def test_the_arms_of_a_seed_take_turns_and_the_one_that_trained_least_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Comparison(tmp_path, monkeypatch)
    made.look()
    assert made.started == ["a-seed0"]
    made.trained("a-seed0", 9.9)
    made.look()
    assert made.told("a-seed0") == [] and made.started == ["a-seed0"]
    made.trained("a-seed0", 12.0)
    made.look()
    made.look()
    assert made.told("a-seed0") == [signal.SIGTSTP] and made.started == ["a-seed0"], (
        "it is asked once, and still trains"
    )
    made.process("a-seed0").stop()
    made.look()
    assert made.started == ["a-seed0", "b-seed0"]
    made.trained("b-seed0", 10.5)
    made.look()
    made.process("b-seed0").stop()
    made.look()
    assert made.told("a-seed0") == [signal.SIGTSTP] and made.told("b-seed0") == [signal.SIGTSTP, signal.SIGCONT], (
        "b has trained least"
    )
    made.process("b-seed0").is_stopped = False
    made.trained("b-seed0", 20.4)
    made.look()
    assert made.told("b-seed0")[2:] == [], "a slice begins with what it had trained: 9.9 s of this one"
    made.trained("b-seed0", 20.5)
    made.look()
    made.process("b-seed0").stop()
    made.look()
    assert made.told("a-seed0") == [signal.SIGTSTP, signal.SIGCONT]


def test_a_seed_begins_when_a_place_is_free_that_the_one_before_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Comparison(tmp_path, monkeypatch, jobs=2)
    made.look()
    assert made.started == ["a-seed0", "b-seed0"]
    for name in made.started:
        made.trained(name, 30.0)
    made.look()
    assert made.told("a-seed0") == made.told("b-seed0") == [], "nobody of their seed waits"
    made.finished("a-seed0")
    made.look()
    assert made.started[2:] == ["b-seed1"], "the order of the arms turns with the seed"
    made.trained("b-seed1", 11.0)
    made.look()
    assert made.told("b-seed1") == [signal.SIGTSTP] and made.told("b-seed0") == []
    made.process("b-seed1").stop()
    made.look()
    assert made.started[3:] == ["a-seed1"]
    made.finished("b-seed0")
    made.look()
    assert made.told("b-seed1") == [signal.SIGTSTP, signal.SIGCONT]
    assert [member.path.name for member in made.left] == ["b-seed1", "a-seed1"]


def test_a_resumed_comparison_goes_on_with_the_run_that_has_trained_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Comparison(tmp_path, monkeypatch, num_arms=3)
    for name, seconds in {"a-seed0": 20.0, "b-seed0": 10.0, "c-seed0": 20.0}.items():
        made.named[name].path.mkdir(parents=True)
        made.trained(name, seconds)
    made.look()
    assert made.started == ["b-seed0"]


@pytest.mark.parametrize(
    ("device", "available", "stays"), [("cpu", 3.0, True), ("cpu", 2.9, False), ("cuda", 90.0, False)]
)
def test_a_run_without_room_beside_it_is_saved_and_ends_after_ten_times_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, available: float, stays: bool
) -> None:
    """It holds 2 GiB, and one and a half times as much has to be free."""
    made = Comparison(tmp_path, monkeypatch)
    monkeypatch.setattr(Member, "is_on_cpu", device == "cpu")
    made.available = int(available * GIB)
    made.look()
    made.starts_took("a-seed0", 2.0)
    made.trained("a-seed0", 19.0)
    made.look()
    assert made.told("a-seed0") == ([signal.SIGTSTP] if stays else [])
    if stays:
        return
    made.trained("a-seed0", 20.5)
    made.look()
    made.look()
    assert made.told("a-seed0") == [signal.SIGTERM], "a second one would keep it from saving"
    made.process("a-seed0").end(143)
    made.look()
    assert made.started == ["a-seed0", "b-seed0"] and len(made.left) == 4
    made.starts_took("b-seed0", 0.5)
    made.trained("b-seed0", 21.0)
    made.look()
    made.process("b-seed0").end(143)
    made.look()
    assert made.started[2:] == ["a-seed0"]
    made.starts_took("a-seed0", 2.0)
    made.trained("a-seed0", 40.6)
    made.look()
    assert made.told("a-seed0") == [], "19.4 s are left, and another start would take 2"


def test_a_run_that_fails_ends_the_comparison_though_it_was_asked_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Comparison(tmp_path, monkeypatch)
    made.look()
    made.runs[made.named["a-seed0"]].has_to_end = True
    made.process("a-seed0").end(-9)
    with pytest.raises(RunFailed, match="a-seed0 ended with exit code -9"):
        made.look()


def test_slices_of_0_seconds_are_whole_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Comparison(tmp_path, monkeypatch)
    made.look()
    made.trained("a-seed0", 59.0)
    schedule._take_turns(made.left, made.runs, 1, 0.0, 1)
    assert made.told("a-seed0") == [] and made.started == ["a-seed0"]
