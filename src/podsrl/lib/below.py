"""The processes below one: who adopts them when their parents end, and how all of them are killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_MAX_ROUNDS = 100


def adopt_orphans() -> None:
    """Become the parent of every process below whose own parent ends, so that all of them can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_below(root: int) -> None:
    """Kill every process below one that adopts orphans, but not that process itself.

    If it is the first of a session, all processes of that session are killed too, even after its end.
    """
    stopped: set[int] = set()
    for _ in range(_MAX_ROUNDS):  # a stopped process cannot start more
        new = below(root) - stopped
        if not new:
            break
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        _send(pid, signal.SIGKILL)


def below(root: int) -> set[int]:
    """Give the processes below one, and those of its session, that have not ended."""
    table = {pid: (parent, session) for pid, parent, session in _processes()}
    found = {pid for pid, (_, session) in table.items() if session == root}
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    waiting = [root, *found]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found - {root, os.getpid()}


def _processes() -> Iterator[tuple[int, int, int]]:
    """Each process that has not ended, with its parent and its session; none where there is no /proc."""
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError, ValueError):  # it ended meanwhile
                    state, parent, _, session, *_ = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                    if state not in "ZX":
                        yield int(name), int(parent), int(session)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
