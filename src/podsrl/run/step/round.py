"""A round of a step: the open groups that it asks, and what came of them so far.

A checkpoint holds the first rounds of the steps that were asked and not trained on, so that a resumed run trains on the
same rollouts, whatever generates and with however many processes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field

import numpy as np

from podsrl.control import View
from podsrl.generate import EngineStats, Generator, add_stats
from podsrl.lib.part_states import Arrays
from podsrl.records import decode_open, encode_open
from podsrl.run.step.opens import grown, with_completions
from podsrl.run.step.under_way import Work
from podsrl.scale.exchange import exchange
from podsrl.scale.processes import Processes
from podsrl.types import Open, Task

_STEPS, OPENS = "steps/", "steps/{step}/opens"
"""Names in parts.safetensors: the open groups of each step (`records.encode_open`)."""
NUMBERS = "steps/numbers"
"""Likewise: the place of the data stream with the generator's counts."""
_MOST = {"slots_used", "rows_used", "steps"}
"""Counts of which the largest is that of several processes; the others add up."""


@dataclass(slots=True, kw_only=True)
class Round:
    """One round."""

    view: View
    """That the budget saw."""
    opens: Sequence[Open]
    """What it asks, of all processes; those of this process have what was read."""
    work: Work | None = None
    """Gives the completions; None where all are read."""
    since: float = field(default_factory=time.perf_counter)
    """When it began, by `time.perf_counter`."""

    def read_ended(self) -> None:
        """Read what has ended, without waiting."""
        if self.work is not None:
            self.opens = with_completions(self.opens, self.work.ended())

    def read_rest(self) -> None:
        """Read what is to come."""
        if self.work is not None:
            opens, forks = with_completions(self.opens, self.work), self.work.forks
            self.opens, self.work = [grown(each, forks.get(each.group.id, {})) for each in opens], None

    def put_off(self) -> None:
        """Stop what runs, and read what there is of it."""
        if self.work is not None:
            self.work.put_off()
        self.read_rest()


@dataclass(slots=True)
class Tally:
    """What the generator of this process counted since the last step was taken, but for evaluations."""

    stats: EngineStats = field(default_factory=EngineStats)
    peak_kv_bytes: int = 0

    def add(self, generator: Generator) -> None:
        """The counts of the generator, which begin anew."""
        stats, peak = take_stats(generator)
        self.stats, self.peak_kv_bytes = add_stats([self.stats, stats]), max(self.peak_kv_bytes, peak)


def take_stats(generator: Generator) -> tuple[EngineStats, int]:
    """The counts of a generator and its largest key-value memory, which begin anew."""
    found = getattr(generator, "stats", EngineStats()), getattr(generator, "peak_kv_bytes", 0)
    generator.stats, generator.peak_kv_bytes = EngineStats(), 0
    return found


def to_arrays(rounds: Sequence[Round], position: int, tally: Tally, processes: Processes) -> Arrays:
    """Rounds, as all processes hold them together, with the place of the data stream. All of them call it."""
    if not rounds:
        return {}
    everywhere = processes.gather([*astuple(tally.stats), tally.peak_kv_bytes])
    stats = add_stats((EngineStats(*row[:-1]) for row in everywhere), largest=_MOST)
    numbers = [position, max(row[-1] for row in everywhere), *astuple(stats)]
    arrays = {NUMBERS: np.array(numbers, dtype=np.int64)}
    for each in rounds:
        opens = exchange(each.opens, processes.share(each.opens), processes)
        arrays[OPENS.format(step=each.view.step)] = np.frombuffer(encode_open(opens), dtype=np.uint8)
    return arrays


def from_arrays(
    arrays: Arrays,
    processes: Processes,
    task_of: Callable[[str, int | None], Task],
    view_at: Callable[[int, int], View],
) -> tuple[list[Round], int, Tally]:
    """What `to_arrays` was given, as one of these processes holds it.

    Args:
        arrays: from `to_arrays`.
        processes: as many as there are now.
        task_of: as in `records.decode`.
        view_at: the view of a step, with the data stream at a place.
    """
    position, peak, *counts = arrays[NUMBERS].tolist()
    steps = sorted(int(found[1]) for name in arrays if (found := re.fullmatch(OPENS.format(step=r"(\d+)"), name)))
    rounds = [
        Round(
            view=view_at(step, position),
            opens=decode_open(arrays[OPENS.format(step=step)].tobytes(), task_of),
            since=0.0,
        )
        for step in steps
    ]
    stats = EngineStats(*counts) if processes.is_main else EngineStats()  # they are summed over the processes
    return rounds, position, Tally(stats, peak)


def take_arrays(arrays: Arrays) -> Arrays:
    """Those of steps that were asked, taken out of all that a checkpoint holds; empty where there are none."""
    return {name: arrays.pop(name) for name in list(arrays) if name.startswith(_STEPS)}
