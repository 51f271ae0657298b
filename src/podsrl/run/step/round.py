"""A round of a step: the open groups that it asks, and what the generator made of them so far.

A checkpoint holds the first round of a step that has begun, so that a resumed run trains on the same rollouts, whatever
generates and with however many processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field

import numpy as np

from podsrl.control import View
from podsrl.generate import EngineStats, Generator, add_stats
from podsrl.lib.part_states import Arrays
from podsrl.records import decode_open, encode_open
from podsrl.run.step.coming import Coming
from podsrl.scale.exchange import exchange
from podsrl.scale.processes import Processes
from podsrl.types import Open, Task

_PART = "steps/"
OPENS, NUMBERS = f"{_PART}opens", f"{_PART}numbers"
"""Names in parts.safetensors: the open groups (`records.encode_open`), and the place of the data stream with the
generator's counts."""
_MOST = {"slots_used", "rows_used", "steps"}
"""Counts of which the largest is that of several processes; the others add up."""


@dataclass(slots=True, kw_only=True)
class Round:
    """One round."""

    view: View
    """That the budget saw."""
    opens: Sequence[Open]
    """What it asks, of all processes; those of this process have what was read."""
    rest: Coming | None = None
    """Gives the completions; None where all are read."""
    since: float = 0.0
    """When it began, by `time.perf_counter`."""
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


def to_arrays(step: Round, processes: Processes) -> Arrays:
    """A round that was read to its end, as all processes hold it together. All of them call it."""
    opens = exchange(step.opens, processes.share(step.opens), processes)
    everywhere = processes.gather([*astuple(step.stats), step.peak_kv_bytes])
    stats = add_stats((EngineStats(*row[:-1]) for row in everywhere), largest=_MOST)
    numbers = [step.view.stream.position, max(row[-1] for row in everywhere), *astuple(stats)]
    return {
        OPENS: np.frombuffer(encode_open(opens), dtype=np.uint8),
        NUMBERS: np.array(numbers, dtype=np.int64),
    }


def from_arrays(
    arrays: Arrays, processes: Processes, task_of: Callable[[str, int | None], Task], view_at: Callable[[int], View]
) -> Round:
    """What `to_arrays` was given, as one of these processes holds it.

    Args:
        arrays: from `to_arrays`.
        processes: as many as there are now.
        task_of: as in `records.decode`.
        view_at: the step's view, with the data stream at a place.
    """
    position, peak, *stats = arrays[NUMBERS].tolist()
    return Round(
        view=view_at(position),
        opens=decode_open(arrays[OPENS].tobytes(), task_of),
        stats=EngineStats(*stats) if processes.is_main else EngineStats(),  # they are summed over the processes
        peak_kv_bytes=peak,
    )


def take_arrays(arrays: Arrays) -> Arrays:
    """Those of a step that has begun, taken out of all that a checkpoint holds; empty where there is none."""
    return {name: arrays.pop(name) for name in list(arrays) if name.startswith(_PART)}
