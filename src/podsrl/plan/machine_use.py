"""How busy the machine was during a measurement: seconds on a busy machine say little about a quiet one.

Linux counts for every thread how long it was ready to run and had no core (/proc/PID/task/TID/schedstat). Where it does
not, the load average has to do, which also counts what ran before.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from podsrl.lib.machine import num_cores

WAITED = 0.05
"""Share of the time without a core from which on a machine counts as busy."""
BEYOND_CORES = 0.5
"""Processes beyond one per core that make a machine busy, where that share is not known."""
_TASKS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """Use of the machine over some time."""

    waited_share: float | None
    """Share of the time in which this process's slowest thread waited for a core, 0 .. 1; None where not known."""
    load: float | None
    """Processes that wanted a core, this one among them: the mean of the last minute. None where not known."""
    num_cores: int
    """That this process may use."""

    @property
    def is_busy(self) -> bool:
        """Whether others took the cores that were needed."""
        if self.waited_share is not None:
            return self.waited_share > WAITED
        return self.load is not None and self.load > self.num_cores + BEYOND_CORES

    @property
    def text(self) -> str:
        """The use in words."""
        waited = f"this process waited {self.waited_share:.0%} of the time for a core" if self.waited_share else ""
        cores = f"{self.num_cores} core{'s' if self.num_cores != 1 else ''}"
        load = f"{self.load:.1f} processes wanted {cores}" if self.load is not None else ""
        return "; ".join(part for part in (waited, load) if part)


class MachineWatch:
    """Measures from its construction on."""

    def __init__(self) -> None:
        self._start, self._waited = time.perf_counter(), _waited_seconds()

    def use(self) -> MachineUse:
        """The use since the start."""
        elapsed = time.perf_counter() - self._start
        waited = [seconds - self._waited.get(thread, 0.0) for thread, seconds in _waited_seconds().items()]
        return MachineUse(
            waited_share=min(1.0, max(waited) / elapsed) if waited and elapsed > 0 else None,
            load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            num_cores=num_cores(),
        )


def _waited_seconds() -> dict[str, float]:
    """Thread -> seconds that it was ready to run but had no core; empty if the system does not count them."""
    found: dict[str, float] = {}
    for task in _TASKS.iterdir() if _TASKS.is_dir() else ():
        try:
            _, waited_ns, _ = (task / "schedstat").read_text().split()
        except (OSError, ValueError):  # the thread has ended, or this kernel does not count
            continue
        found[task.name] = int(waited_ns) / 1e9
    return found
