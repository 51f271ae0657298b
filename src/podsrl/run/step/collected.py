"""What a step has collected, and what it needed of the machine."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

from podsrl.generate import EngineStats
from podsrl.lib.cpu_time import CpuTime
from podsrl.scale.processes import Processes
from podsrl.score import ScoreStats
from podsrl.types import Group, Open


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of one step."""

    seen: tuple[Group, ...]
    """All groups of the step, in the order in which they were first asked."""
    trained: Set[str]
    """Ids of those that the budget keeps, to train on."""
    unfinished: tuple[Open, ...]
    """Groups with rollouts that were begun and are in no group: postponed ones, or the group was closed before them."""
    waiting: tuple[Open, ...] = ()
    """Groups that wait for later steps, the oldest first."""
    num_resumed_tokens: int = 0
    """That earlier steps drew, of the groups that waited for this one."""
    data_position: int
    """Where the data stream stands after them."""
    stats: EngineStats
    """Of all rounds, by this process alone."""
    peak_kv_bytes: int
    overlapped_seconds: float
    """From the begin of the generation of round 0 until the caller waited for it."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """To train on."""
        return tuple(group for group in self.seen if group.id in self.trained)

    @property
    def left_out(self) -> tuple[Group, ...]:
        """That the budget keeps out of the training."""
        return tuple(group for group in self.seen if group.is_trained and group.id not in self.trained)

    @property
    def probes(self) -> tuple[Group, ...]:
        """Only for the budget to look at."""
        return tuple(group for group in self.seen if not group.is_trained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Counts are summed over the processes; memory is that of the process which needed most."""

    num_decode_steps: int
    """Of the process that took most."""
    num_forwarded: int
    """Tokens that the model read one at a time to generate."""
    num_reread: int
    """Tokens whose keys and values were computed again."""
    peak_generate_bytes: int
    peak_update_bytes: int | None
    """None on a CPU."""
    num_stopped: int
    """Rollouts counted as wrong because a known reward ran into a limit."""
    num_hurried: int
    """Rollouts whose judging was stopped at a lowered limit."""
    stopped_reasons: tuple[str, ...]
    num_postponed: int
    """Rollouts that came back unfinished and are in no group, and those of groups that wait for later steps."""
    num_postponed_tokens: int
    num_pruned: int
    """Rollouts that were begun and are in no group, because it was closed before them."""
    num_pruned_tokens: int
    num_waiting: int
    """Groups that wait for later steps."""
    num_resumed_tokens: int
    """That earlier steps drew, of those that waited for this one."""
    cpu: CpuTime


def gather_load(
    collected: Collected, scored: ScoreStats, update_bytes: int | None, cpu: CpuTime, processes: Processes
) -> Load:
    """What the step needed, from the counts of all processes. Every process calls it.

    Args:
        scored: of this process's scorer in the step.
        update_bytes: most memory of this process's update; None on a CPU.
        cpu: of this process and those below it in the step.
    """
    stats, waiting = collected.stats, collected.waiting
    postponed = [done for each in collected.unfinished for done in each.begun]
    postponed += [done for each in waiting for done in each.rollouts]
    pruned = [count for each in collected.unfinished for count in each.pruned]
    own: list[Any] = [
        *(stats.steps, stats.forwarded, stats.recomputed_tokens),
        *(collected.peak_kv_bytes, update_bytes),
        *(scored.num_stopped, scored.num_hurried, list(scored.reasons), cpu),
    ]
    steps, forwarded, reread, generate_bytes, bytes_of_update, stopped, hurried, reasons, cpu_times = zip(
        *processes.gather(own), strict=True
    )
    return Load(
        num_decode_steps=max(steps),
        num_forwarded=sum(forwarded),
        num_reread=sum(reread),
        peak_generate_bytes=max(generate_bytes),
        peak_update_bytes=None if bytes_of_update[0] is None else max(bytes_of_update),
        num_stopped=sum(stopped),
        num_hurried=sum(hurried),
        stopped_reasons=tuple(dict.fromkeys(chain.from_iterable(reasons))),
        num_postponed=len(postponed),
        num_postponed_tokens=sum(done.num_own for done in postponed),
        num_pruned=len(pruned),
        num_pruned_tokens=sum(pruned),
        num_waiting=len(waiting),
        num_resumed_tokens=collected.num_resumed_tokens,
        cpu=CpuTime.sum(CpuTime(*each) for each in cpu_times),
    )
