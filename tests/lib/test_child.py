"""A child ends with its parent and takes all below it along; whatever it does, nobody waits for ever, and one line says
why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from podsrl.lib.child import Child, Lost, Process, how_it_ended, last_line
from waiting import is_alive, wait_for

SCRIPT = """
import os, signal, subprocess, sys, time

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]

def echo(channel, *arguments):
    while (frame := channel.receive()) is not None:
        channel.send([*arguments, frame.head, os.getsid(0) == os.getpid()], frame.body[::-1], frame.descriptor)

def family(channel):
    pids = [os.getpid(), subprocess.Popen(SLEEP).pid, subprocess.Popen(SLEEP, start_new_session=True).pid]
    reader, writer = os.pipe()
    if os.fork() == 0:  # a daemon: its parent ends, and its session is its own
        os.setsid()
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
        os.write(writer, str(pid).encode())
        os._exit(0)
    channel.send([*pids, int(os.read(reader, 100))])
    return 3 if channel.receive() is not None else time.sleep(600)

def dies(channel, number):
    channel.receive()
    if number == 0:
        raise ValueError("too large")
    if number < 0:
        return -number
    os.kill(os.getpid(), number)

def hangs(channel):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setswitchinterval(1e6)
    channel.send("ready")
    while True:
        pass
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "own_child.py"
    file.write_text(SCRIPT)
    return file


def test_a_child_answers_in_a_session_of_its_own(script: Path) -> None:
    child = Child(f"{script}:echo", 1, {"a": None})
    assert child.ask("x", b"abc", seconds=300).head == [1, {"a": None}, "x", True]
    assert child.ask(0.1, b"abc", seconds=300).body == b"cba"
    assert child.code is None and is_alive(child.pid)
    child.kill()
    assert child.code == -signal.SIGKILL
    with pytest.raises(Lost, match="killed by SIGKILL"):
        child.ask(seconds=300)
    child.kill()


@pytest.mark.parametrize("how", ["killed", "by itself", "forgotten"])
def test_all_that_a_child_started_ends_with_it(script: Path, how: str) -> None:
    child = Child(f"{script}:family")
    frame = child.channel.receive(300)
    assert frame is not None and all(map(is_alive, frame.head))
    if how == "killed":
        child.kill()
    elif how == "by itself":
        child.channel.send(0)
        assert child.wait(300) == 3
    del child
    wait_for(lambda: not any(map(is_alive, frame.head)))


@pytest.mark.parametrize(
    ("number", "line", "printed"),
    [
        (0, "exit code 1", "ValueError: too large"),
        (-3, "exit code 3", ""),
        (9, "killed by SIGKILL", ""),
        (40, "killed by signal 40", ""),
    ],
)
def test_how_a_child_was_lost_is_one_line(script: Path, number: int, line: str, printed: str, tmp_path: Path) -> None:
    with (tmp_path / "printed").open("w+b") as file:
        child = Child(f"{script}:dies", number, output=file)
        with pytest.raises(Lost, match=f"^{line}$"):
            child.ask(seconds=300)
        assert last_line(file) == last_line(tmp_path / "printed") == printed
        assert how_it_ended(child.code or 0) == line
    assert last_line(file) == last_line(tmp_path / "none") == ""


def test_a_child_that_does_not_answer_in_time_is_killed(script: Path) -> None:
    child = Child(f"{script}:hangs")
    assert child.channel.receive(300) is not None
    with pytest.raises(Lost, match=r"^no answer within 0\.1 s$"):
        child.ask("a", seconds=0.1)
    assert not is_alive(child.pid) and child.code == -signal.SIGKILL


def test_an_interrupt_leaves_no_answer_for_the_next_message(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(f"{script}:echo")

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(child.channel, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        child.ask("a", seconds=300)
    assert not is_alive(child.pid)


PARENT = """
import sys, time
from podsrl.lib.child import Child
child = Child(sys.argv[1])
print(child.pid, flush=True)
child.channel.receive()
print("ready", flush=True)
time.sleep(600)
"""


def test_a_child_ends_with_a_parent_that_is_killed_though_it_holds_the_lock_of_the_interpreter(script: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, f"{script}:hangs"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == "ready\n" and is_alive(pid)
    parent.kill()
    parent.communicate()
    wait_for(lambda: not is_alive(pid))


def test_a_child_that_ends_itself_outlives_the_thread_that_started_it(script: Path) -> None:
    found: list[Child] = []
    thread = threading.Thread(target=lambda: found.append(Child(f"{script}:echo", ends_itself=True)))
    thread.start()
    thread.join()
    [child] = found
    assert child.ask(1, seconds=300).head == [1, True]
    pid = child.pid
    child.channel.close()
    wait_for(lambda: not is_alive(pid))
    child.kill()


def test_a_fork_leaves_its_parents_child_alone(script: Path) -> None:
    child = Child(f"{script}:echo")
    child.ask(seconds=300)
    pid = os.fork()
    if pid == 0:
        child.kill()
        os._exit(0)
    os.waitpid(pid, 0)
    assert child.ask("still", seconds=300).head == ["still", True]
    child.kill()


def test_a_command_is_waited_for_and_keeps_its_number_until_it_is_looked_at(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        process = Process(
            [sys.executable, "-S", "-c", "import os, time; print(os.environ['A'], flush=True); time.sleep(600)"],
            variables={"A": "said"},
            output=log,
        )
    wait_for(lambda: last_line(tmp_path / "log") == "said")
    assert process.wait(0.0) is None
    assert not process.is_stopped
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: process.is_stopped)
    assert process.is_stopped and process.code is None, "to ask changes nothing"
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: not process.is_stopped)
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: not is_alive(process.pid))
    time.sleep(0.05)
    assert not process.is_stopped
    assert Path(f"/proc/{process.pid}").exists()  # nobody else can have its number
    assert process.code == -signal.SIGTERM and not Path(f"/proc/{process.pid}").exists()
    process.send_signal(signal.SIGTERM)
