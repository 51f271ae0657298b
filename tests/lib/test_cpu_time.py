"""Processor time, from hand-written files of /proc and from a process that works."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from podsrl.lib import cpu_time
from podsrl.lib.cpu_time import CpuTime, CpuWatch

TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """A process whose own and only child is process 7, with one thread each."""

    def __init__(self, proc: Path) -> None:
        self.proc, self.own = proc, 0.0
        self.children: set[int] = {7}
        for pid in (os.getpid(), 7):
            (proc / str(pid) / "task" / "1").mkdir(parents=True)

    def set(self, pid: int, used: int, of_ended: int, waited: float) -> None:
        """Seconds."""
        before = "7 (a name) with) S 1 7 7 0 -1 0 0 0 0 0"  # the name may hold anything
        stat = f"{before} {used * TICKS} 0 {of_ended * TICKS} 0 20 0"
        (self.proc / str(pid) / "stat").write_text(stat)
        (self.proc / str(pid) / "task" / "1" / "schedstat").write_text(f"1 {int(waited * 1e9)} 3\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    clock = SimpleNamespace(monotonic=time.monotonic, process_time=lambda: made.own)
    monkeypatch.setattr(cpu_time, "_PROC", tmp_path)
    monkeypatch.setattr(cpu_time, "below", lambda root: made.children)
    monkeypatch.setattr(cpu_time, "time", clock)
    monkeypatch.setattr(os, "times", lambda: SimpleNamespace(children_user=0.0, children_system=0.0))
    return made


def test_what_lies_between_pause_and_go_does_not_count_and_a_child_does(machine: Machine) -> None:
    watch, me = CpuWatch(), os.getpid()
    machine.own = 10.0
    machine.set(me, 0, 0, 1.0)  # its own processor time is known more exactly than from here
    machine.set(7, 4, 2, 3.0)
    watch.go()
    machine.own = 11.5
    machine.set(me, 0, 0, 1.25)
    machine.set(7, 6, 3, 3.5)
    watch.pause()
    machine.own = 90.0
    machine.set(7, 60, 3, 35.0)
    watch.go()
    machine.own = 90.25
    machine.set(me, 0, 0, 1.5)
    assert watch.take() == CpuTime(1.5 + 3 + 0.25, 0.25 + 0.5 + 0.25)
    assert watch.take() == CpuTime(0.0, 0.0)


def test_a_step_that_was_given_up_does_not_count_for_the_next(machine: Machine) -> None:
    watch = CpuWatch()
    machine.set(os.getpid(), 0, 0, 0.0)
    watch.go()
    machine.own = 5.0
    watch.go()
    machine.own = 5.5
    assert watch.take().used == 0.5


def test_a_system_that_does_not_say_how_long_threads_waited_gives_none(machine: Machine) -> None:
    machine.children = set()
    watch = CpuWatch()
    watch.go()
    machine.own = 2.0
    assert watch.take() == CpuTime(2.0, None)


def test_a_child_that_has_ended_has_used_what_it_used() -> None:
    watch = CpuWatch()
    watch.go()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    assert watch.take().used > 0.4
