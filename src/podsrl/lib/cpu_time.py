"""Processor time of this process and of all processes below it: what they used, and how long they waited for a core.

Seconds of the wall clock also hold what other processes took of the machine; these two tell the one from the other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from podsrl.lib.below import below

_LOOK_SECONDS = 10.0
"""How long the processes below are remembered: to look for them reads all of /proc."""
_PROC = Path("/proc")


class CpuTime(NamedTuple):
    """Seconds, summed over threads and processes."""

    used: float
    """That a core worked for them."""
    waited: float | None
    """That they were ready and other threads had the cores; None where the system does not say (it is not Linux)."""

    @staticmethod
    def sum(times: Iterable[CpuTime]) -> CpuTime:
        """
        Example:
            >>> CpuTime.sum([CpuTime(1.0, 0.5), CpuTime(2.0, 0.25)]), CpuTime.sum([CpuTime(1.0, None)])
            (CpuTime(used=3.0, waited=0.75), CpuTime(used=1.0, waited=None))
        """
        used, waited = zip(*times, strict=True)
        return CpuTime(sum(used), None if None in waited else sum(waited))


class CpuWatch:
    """A stopwatch for processor time, which does not run yet."""

    def __init__(self) -> None:
        self._since: CpuTime | None = None
        self._sums = CpuTime(0.0, 0.0)
        self._below: set[int] = set()
        self._looked = -_LOOK_SECONDS

    def go(self) -> None:
        """Count from here on; if it runs already, from 0. Of a process that begins later, what it used when it ends."""
        if self._since is not None:
            self._sums = CpuTime(0.0, 0.0)
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._below, self._looked = below(os.getpid()), time.monotonic()
        self._since = self._now()

    def pause(self) -> None:
        """Count no more until `go`."""
        if self._since is not None:
            since, now = self._since, self._now()
            waited = None if since.waited is None or now.waited is None else max(0.0, now.waited - since.waited)
            self._sums = CpuTime.sum([self._sums, CpuTime(max(0.0, now.used - since.used), waited)])
            self._since = None

    def take(self) -> CpuTime:
        """Stop, and give what was counted; the next `go` counts from 0."""
        self.pause()
        found, self._sums = self._sums, CpuTime(0.0, 0.0)
        return found

    def _now(self) -> CpuTime:
        """Since all of them began; what a process that has ended used is in its parent's, its waiting is lost."""
        ended = os.times()
        used = time.process_time() + ended.children_user + ended.children_system + sum(map(_used, self._below))
        waited = [_waited(pid) for pid in (os.getpid(), *self._below)]
        return CpuTime(used, sum(each or 0.0 for each in waited) if waited[0] is not None else None)


def _used(pid: int) -> float:
    """Of a process and of those below it that have ended; 0 where it is gone."""
    with suppress(OSError):
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _waited(pid: int) -> float | None:
    """Of a process's threads; None where the system does not say."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(_PROC / str(pid) / "task"):
            with suppress(OSError):
                found.append(int((_PROC / str(pid) / "task" / thread / "schedstat").read_text().split()[1]))
    return sum(found) / 1e9 if found else None
