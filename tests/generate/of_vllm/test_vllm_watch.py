"""Processes that vLLM starts: whose signals they get, and that they end. Here they sleep."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import children
from podsrl.generate.vllm.watch import Watch
from waiting import is_alive, wait_for

SLEEPING = """
import multiprocessing, signal, sys, time
from podsrl.generate.vllm.watch import Watch
def make():
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
    print(child.pid, flush=True)
    while sys.argv[1] == "loading":
        time.sleep(1)
if __name__ == "__main__":
    watch, asked = Watch(), []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if sys.argv[1] == "loading" else lambda *_: asked.append(1))
    watch.start(make)
    while not asked:
        time.sleep(0.02)
    print("lost" if watch.has_ended else "saved", flush=True)
    watch.end(0)
"""


@pytest.fixture
def watch() -> Iterator[Watch]:
    found = Watch()
    yield found
    found.end(0)


def sleeping(target: Callable[..., Any] = time.sleep, *words: Any) -> int:
    """Starts a process; its id."""
    child = multiprocessing.get_context("spawn").Process(target=target, args=words or (600,))
    child.start()
    assert child.pid is not None
    return child.pid


def test_a_child_leads_a_session_of_its_own(watch: Watch) -> None:
    pid = watch.start(sleeping)
    assert os.getsid(pid) == os.getpgid(pid) == pid and not watch.has_ended


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_leaves_no_child(watch: Watch, error: type[BaseException]) -> None:
    def fail() -> None:
        started.append(sleeping())
        raise error

    started: list[int] = []
    with pytest.raises(error):
        watch.start(fail)
    assert not is_alive(started[0])
    with pytest.raises(RuntimeError):
        watch.start(sleeping)


def test_a_child_that_fails_ends_a_start_that_does_not_look_at_it(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podsrl.generate.vllm.watch._TELL_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="failed"):
        watch.start(lambda: (sleeping(os._exit, 3), threading.Event().wait(60)))


def test_a_child_that_ends_later_is_noticed_and_what_waits_for_it_is_woken(watch: Watch) -> None:
    woken = threading.Event()
    pid = watch.start(sleeping)
    watch.wake_by(woken.set)
    os.kill(pid, signal.SIGKILL)
    assert woken.wait(300) and watch.has_ended and not watch.is_late


def test_children_that_take_too_long_are_ended(watch: Watch) -> None:
    watch.start(sleeping)
    with watch.limited(0.1):
        wait_for(lambda: watch.has_ended)
    assert watch.is_late


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("phase", ["loading", "generating"])
def test_a_signal_to_all_reaches_this_process_alone_and_the_child_ends_with_it(
    phase: str, number: signal.Signals
) -> None:
    run = children.Popen(
        [sys.executable, "-c", SLEEPING, phase], stdout=children.PIPE, stderr=children.DEVNULL, start_new_session=True
    )
    assert run.stdout is not None
    child = int(run.stdout.readline())
    os.killpg(run.pid, number)
    said = run.communicate(timeout=300)[0]
    assert said == (b"saved\n" if phase == "generating" and number != signal.SIGKILL else b"")
    wait_for(lambda: not is_alive(child))
