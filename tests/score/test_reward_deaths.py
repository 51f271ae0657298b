"""Whatever ends a reward worker, nothing that it started stays: children, orphans, sessions of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_reward_workers import rows

from podsrl.lib.below import below, kill_below
from podsrl.score.panel import Panel
from waiting import is_alive, wait_for

FAMILY = """
import os, signal, subprocess, sys, time

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]

def family(task, text):
    folder, do = text.split("|")
    found = [os.getpid(), subprocess.Popen(SLEEP).pid, subprocess.Popen(SLEEP, start_new_session=True, env={}).pid]
    reader, writer = os.pipe()
    if os.fork() == 0:  # a daemon: its parent ends, and its session is its own
        os.setsid()
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
        os.write(writer, str(pid).encode())
        os._exit(0)
    found.append(int(os.read(reader, 100)))
    if os.fork() == 0:  # holds what the worker has open
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    with open(folder, "w") as file:
        file.write(" ".join(map(str, found)))
    if do == "hang":
        time.sleep(600)
    if do == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if do == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    return 1.0

def families(completions):
    return [family(None, text) for text in completions]
"""

MAIN = """
import sys, time
from podsrl.score.base import Rows
from podsrl.score.panel import Panel
from podsrl.types import Task

task = Task(id="a", prompt="x", answer="1")
with Panel({"family_rewards:family": "--reward"}, num_workers=1, timeout_seconds=100) as workers:
    workers.judge("family_rewards:family", Rows(tasks=[task], texts=[sys.argv[1]], token_ids=[()]))
    print("judged", flush=True)
    if sys.argv[2] == "wait":
        time.sleep(600)
"""


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "family_rewards.py").write_text(FAMILY)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "pids"


def pids(file: Path) -> list[int]:
    wait_for(lambda: file.exists() and len(file.read_text().split()) == 4)
    return [int(word) for word in file.read_text().split()]


def wait_until_all_are_gone(file: Path) -> None:
    found = pids(file)
    wait_for(lambda: not any(map(is_alive, found)))


@pytest.mark.parametrize(
    ("do", "seconds", "reason"),
    [("hang", 1.0, "took longer than 1 s and was stopped"), ("crash", 100.0, "died (killed by SIGSEGV)")],
)
def test_what_ends_a_worker_leaves_nothing_though_a_child_holds_its_socket(
    family: Path, do: str, seconds: float, reason: str
) -> None:
    with Panel({"family_rewards:family": "--reward"}, num_workers=1, timeout_seconds=seconds) as workers:
        values = workers.judge("family_rewards:family", rows([f"{family}|{do}"]))
        assert values.faults[0].reason.endswith(reason)
        wait_until_all_are_gone(family)


@pytest.mark.parametrize("do", ["return", "hang", "stop"])
def test_closing_leaves_nothing(family: Path, do: str) -> None:
    workers = Panel({"family_rewards:family": "--reward"}, num_workers=1, timeout_seconds=100)
    workers.submit(rows(["a"]).tasks, [f"{family}|{do}"])
    pids(family)
    workers.close()
    wait_until_all_are_gone(family)
    with pytest.raises(ValueError, match="closed"):
        workers.judge("family_rewards:family", rows(["b"]))


def run_main(family: Path, do: str, then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, f"{family}|{do}", then],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(family.parent), *sys.path])},
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("number", "do"),
    [
        (signal.SIGKILL, "hang"),
        (signal.SIGKILL, "return"),
        (signal.SIGKILL, "stop"),
        (signal.SIGTERM, "return"),
        (signal.SIGTERM, "hang"),
        (signal.SIGTERM, "stop"),
    ],
)
def test_the_main_process_s_death_leaves_nothing(family: Path, do: str, number: signal.Signals) -> None:
    main = run_main(family, do, "wait")
    pids(family)
    os.kill(main.pid, number)
    main.communicate(timeout=300)
    wait_until_all_are_gone(family)


def test_everything_below_is_found_and_nothing_else() -> None:
    code = "import os, time; os.fork(); os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    root = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert root.stdout is not None
    family = {int(root.stdout.readline()) for _ in range(4)}
    assert below(root.pid) == family - {root.pid}
    kill_below(root.pid)
    wait_for(lambda: not below(root.pid))
    assert root.poll() is None and other.poll() is None
    for process in (root, other):
        process.kill()
        process.wait()
