"""Processor time as a law that holds on every machine: one call beside another in the same process, never seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

Call = Callable[[], object]


def least_seconds(call: Call, runs: int) -> float:
    """Processor time of the quickest of some runs: others on the machine, imports and caches only ever add to it."""
    found = []
    for _ in range(runs):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


def assert_at_most(factor: float, call: Call, other: Call) -> None:
    """A call takes at most so many times the processor time of another; where one run says no, by five of each."""
    found = 0.0
    for runs in (1, 5):
        found = least_seconds(call, runs) / least_seconds(other, runs)
        if found <= factor:
            return
    raise AssertionError(f"{found:.1f} times as long, at most {factor:g} wanted")
