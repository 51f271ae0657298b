"""What a step needed of the machine: which counts are summed over processes, and which are the largest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import made
from made import completion, group
from podsrl.generate import EngineStats
from podsrl.lib.cpu_time import CpuTime
from podsrl.run.step.collected import Collected, Load, gather_load
from podsrl.score.scorer import ScoreStats
from podsrl.types import Open, Way

OTHER = (9, 100, 20, 300, 8000, 1, 2, ["late", "memory"], [3.0, 0.5])
"""What another process counted, in the order in which a process sends it."""


SCORED = ScoreStats(num_stopped=3, num_hurried=4, reasons=dict.fromkeys(("time", "late")))


def load(step: Collected, *others: tuple[Any, ...], peak_bytes: int | None = 5000) -> Load:
    """`others` are the counts of further processes."""
    processes: Any = SimpleNamespace(gather=lambda own: [own, *others])
    return gather_load(step, SCORED, peak_bytes, CpuTime(1.5, 0.25), processes)


def collected(*lengths: int) -> Collected:
    """A step's, with unfinished completions of these lengths."""
    begun = tuple(completion((7,) * length, **made.ended("open")) for length in lengths)
    stats = EngineStats(steps=7, tokens=60, forwarded=41, recomputed_tokens=5)
    return Collected(
        seen=(),
        trained=frozenset(),
        data_position=0,
        unfinished=(Open(group=group("q"), ways=(Way(count=len(lengths)),), begun=begun, pruned=(4, 5, 2)),),
        stats=stats,
        peak_kv_bytes=400,
        overlapped_seconds=0.0,
    )


ALONE = Load(
    num_decode_steps=7,
    num_forwarded=41,
    num_reread=5,
    peak_generate_bytes=400,
    peak_update_bytes=5000,
    num_stopped=3,
    num_hurried=4,
    stopped_reasons=("time", "late"),
    num_postponed=2,
    num_postponed_tokens=5,
    num_pruned=3,
    num_pruned_tokens=11,
    num_waiting=0,
    num_resumed_tokens=0,
    cpu=CpuTime(1.5, 0.25),
)


def test_a_process_alone_has_its_own_counts() -> None:
    assert load(collected(2, 3)) == ALONE


def test_counts_of_two_processes_are_summed_and_memory_and_decode_steps_are_the_largest() -> None:
    assert load(collected(2, 3), OTHER) == Load(
        num_decode_steps=9,
        num_forwarded=141,
        num_reread=25,
        peak_generate_bytes=400,
        peak_update_bytes=8000,
        num_stopped=4,
        num_hurried=6,
        stopped_reasons=("time", "late", "memory"),
        num_postponed=2,
        num_postponed_tokens=5,
        num_pruned=3,
        num_pruned_tokens=11,
        num_waiting=0,
        num_resumed_tokens=0,
        cpu=CpuTime(4.5, 0.75),
    )


def test_a_cpu_counts_no_memory_of_the_update() -> None:
    other = (*OTHER[:4], None, *OTHER[5:])
    assert load(collected(), other, peak_bytes=None).peak_update_bytes is None
