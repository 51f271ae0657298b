"""Ends whatever a process has started: children, their children, and those that went into sessions of their own."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ADOPT_ORPHANS = 36
"""Linux's PR_SET_CHILD_SUBREAPER."""
_MAX_ROUNDS = 100


def adopt_orphans() -> None:
    """Become the parent of every process below whose own parent ends, so that none gets out of sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1)


def kill_below(root: int) -> None:
    """Kill everything below a process, but not the process itself.

    Args:
        root: a process that adopts orphans. If it is the first of a session, and even after its end, whatever
            belongs to that session is killed too.
    """
    stopped: set[int] = set()
    for _ in range(_MAX_ROUNDS):  # what is stopped cannot start more
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
