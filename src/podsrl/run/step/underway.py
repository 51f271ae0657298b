"""A step that has begun and is not finished: what was asked, and what the generator made of it so far.

A checkpoint holds it as arrays, so that a resumed run trains on the same rollouts, whatever generates and with however
many processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace

import numpy as np

from podsrl.control import View
from podsrl.generate import EngineStats, Generator, add_stats
from podsrl.records import decode, encode
from podsrl.run.saving.part_states import Arrays
from podsrl.run.step.wanted import More, Wanted, by_group
from podsrl.scale.exchange import exchange_groups
from podsrl.scale.processes import Processes
from podsrl.types import Rollout, Task

GROUPS, COUNTS, NUMBERS = "steps/groups", "steps/counts", "steps/numbers"
"""Names in parts.safetensors: the groups with their unscored rollouts (`records.encode`), how many rollouts of each
were asked for, and the place of the data stream with the generator's counts."""
_MOST = {"slots_used", "rows_used", "steps"}
"""Counts of which the largest is that of several processes; the others add up."""


@dataclass(slots=True, kw_only=True)
class Underway:
    """Round 0 of a step."""

    view: View
    """That the budget saw."""
    wanted: Sequence[Wanted]
    """Of groups without rollouts."""
    rollouts: list[Rollout] = field(default_factory=list)
    """Read so far and not judged, of this process alone."""
    rest: Iterator[Rollout] | None = None
    """Gives the others; None where all are read."""
    begun: float = 0.0
    """When, by `time.perf_counter`."""
    overlapped_seconds: float = 0.0
    """From then until the caller waited for the rollouts."""
    stats: EngineStats = field(default_factory=EngineStats)
    """Of this process's generator."""
    peak_kv_bytes: int = 0


def take_stats(generator: Generator) -> tuple[EngineStats, int]:
    """The counts of a generator and its largest key-value memory, which begin anew."""
    found = getattr(generator, "stats", EngineStats()), getattr(generator, "peak_kv_bytes", 0)
    generator.stats, generator.peak_kv_bytes = EngineStats(), 0
    return found


def to_arrays(step: Underway, processes: Processes) -> Arrays:
    """A step that was read to its end, as all processes hold it together. All of them call it."""
    found = by_group(processes.share(step.wanted), step.rollouts)
    own = [replace(each.group, rollouts=tuple(found[each.group.id])) for each in processes.share(step.wanted)]
    groups = exchange_groups({each.group.id: each.group.task for each in step.wanted}, own, processes)
    everywhere = processes.gather([*astuple(step.stats), step.peak_kv_bytes])
    stats = add_stats((EngineStats(*row[:-1]) for row in everywhere), largest=_MOST)
    numbers = [step.view.stream.position, max(row[-1] for row in everywhere), *astuple(stats)]
    return {
        GROUPS: np.frombuffer(encode(groups), dtype=np.uint8),
        COUNTS: np.array([each.count for each in step.wanted], dtype=np.int64),
        NUMBERS: np.array(numbers, dtype=np.int64),
    }


def from_arrays(
    arrays: Arrays, processes: Processes, task_of: Callable[[str, int | None], Task], view_at: Callable[[int], View]
) -> Underway:
    """What `to_arrays` was given, as one of these processes holds it.

    Args:
        arrays: from `to_arrays`; their digest has been checked.
        processes: as many as there are now.
        task_of: as in `records.decode`.
        view_at: the step's view, with the data stream at a place.
    """
    groups = decode(arrays[GROUPS].tobytes(), task_of)
    position, peak, *stats = arrays[NUMBERS].tolist()
    counts = arrays[COUNTS].tolist()
    return Underway(
        view=view_at(position),
        wanted=[
            Wanted(replace(group, rollouts=()), (More(count),)) for group, count in zip(groups, counts, strict=True)
        ],
        rollouts=[rollout for group in processes.share(groups) for rollout in group.rollouts],
        stats=EngineStats(*stats) if processes.is_main else EngineStats(),  # they are summed over the processes
        peak_kv_bytes=peak,
    )


def take_arrays(arrays: Arrays) -> Arrays:
    """Those of a step under way, taken out of all that a checkpoint holds; empty where there is none."""
    return {name: arrays.pop(name) for name in (GROUPS, COUNTS, NUMBERS) if name in arrays}


def digest(arrays: Arrays) -> str:
    """SHA-256 of the arrays; of none, empty."""
    if not arrays:
        return ""
    result = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        result.update(repr((name, array.dtype.str, array.shape)).encode())
        result.update(np.ascontiguousarray(array).tobytes())
    return result.hexdigest()
