"""Infinite Sampling's schedules on recorded lengths: decode steps, completion times and KV memory of one group.

A group of G rollouts runs on g = G/4 slots under each schedule, in the simulator that runs the engine's own scheduler
objects. Steps are compared with the least that g slots can take, max(ceil(sum L / g), max L), and memory with full-group
decoding's, counted in two ways:

    KV at once   most of rows times the longest row at one time: full-group decoding hands back the row of a rollout that
                 has ended, so this is the stricter comparison
    KV pool      most rows times the longest row ever: a pool that is never made smaller

"perfect" knows the lengths; "predicted" has the online predictor, which learned from other groups and from rollouts that
have ended; "probed" has looked at the first tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from podsrl.bench.lengths import SETS, LengthSet, Recorded
from podsrl.generate.lengths import KnownLengths, LengthRegression, Predictor
from podsrl.generate.scheduler import Limits, make_scheduler
from podsrl.generate.simulate import Simulation, least_steps, simulate

HELP = "Steps and KV memory of full-group, micro-group, continuous, probed and dynamic schedules; tokens per second."

Lengths = Literal["none", "perfect", "predicted"]
GROUP_SIZES = (32, 128, 512)
QUICK_GROUP_SIZES = (32,)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A line of the table."""

    name: str
    """As `make_scheduler` reads it."""
    lengths: Lengths = "none"
    memory: Literal["slots", "half"] = "slots"
    """What bounds a dynamic schedule: as much memory as g of the group's longest rows, or half of full-group's peak."""


SCHEDULES = (
    Schedule("full"),
    Schedule("micro"),
    Schedule("micro+ljf", "perfect"),
    Schedule("continuous"),
    *(Schedule(f"continuous+{order}", "perfect") for order in ("sjf", "ljf", "grouped")),
    *(Schedule(f"continuous+{order}", "predicted") for order in ("sjf", "ljf", "grouped")),
    *(Schedule(f"probed+{order}", "predicted") for order in ("sjf", "ljf", "grouped")),
    *(Schedule("dynamic+ljf", lengths, memory) for memory in ("slots", "half") for lengths in ("perfect", "predicted")),
    *(Schedule(f"dynamic{order}", "predicted", "half") for order in ("", "+sjf")),
)


def simulate_set(length_set: LengthSet) -> list[dict[str, Any]]:
    """Run every schedule on every group of a set -> one row a schedule, means over groups."""
    learned = {probes: _learned(length_set, probes) for probes in (False, True)}
    full = [_simulate(length_set, group, Schedule("full"), deepcopy(learned[False]), None) for group in length_set.groups]
    micro = [_simulate(length_set, g, Schedule("micro"), deepcopy(learned[False]), None) for g in length_set.groups]
    rows = []
    for schedule in SCHEDULES:
        is_probed = schedule.name.startswith("probed")
        if is_probed and length_set.probe_at is None:
            continue
        predictor = deepcopy(learned[is_probed])
        runs = [
            _simulate(length_set, group, schedule, predictor, whole)
            for group, whole in zip(length_set.groups, full, strict=True)
        ]
        rows.append(_row(length_set, schedule, runs, full, micro))
    return rows


def _learned(length_set: LengthSet, probes: bool) -> LengthRegression:
    """A predictor that has seen the rollouts to learn from, each predicted before it was learned."""
    predictor = LengthRegression(length_set.probe_at if probes else None)
    if length_set.learned:
        _run(length_set, length_set.learned, "continuous", Limits(num_slots=64), predictor)
    return predictor


def _simulate(
    length_set: LengthSet, group: Sequence[Recorded], schedule: Schedule, predictor: Predictor, full: Simulation | None
) -> Simulation:
    num_slots, num_tokens = max(1, len(group) // 4), None
    if schedule.name == "full":
        num_slots = len(group)
    if schedule.name.startswith("dynamic") and full is not None:
        num_tokens = num_slots * full.longest_row if schedule.memory == "slots" else full.peak_kv_tokens // 2
        num_slots = len(group)
    limits = Limits(num_slots=num_slots, num_tokens=num_tokens)
    return _run(length_set, group, schedule.name, limits, None if schedule.lengths == "perfect" else predictor)


def _run(
    length_set: LengthSet, group: Sequence[Recorded], name: str, limits: Limits, predictor: Predictor | None
) -> Simulation:
    """One group under one schedule; without a predictor, lengths are known."""
    jobs = length_set.jobs(group)
    lengths = [row.length for row in group]
    if predictor is None:
        predictor = KnownLengths(dict(zip(jobs, lengths, strict=True)))
    scheduler = make_scheduler(name, limits, predictor)
    return simulate(scheduler, jobs, lengths, length_set.features_of(group, jobs))


def _row(
    length_set: LengthSet,
    schedule: Schedule,
    runs: Sequence[Simulation],
    full: Sequence[Simulation],
    micro: Sequence[Simulation],
) -> dict[str, Any]:
    groups = length_set.groups
    lengths = [[row.length for row in group] for group in groups]
    bounds = [least_steps(each, max(1, len(each) // 4)) for each in lengths]
    over = [run.num_steps / bound for run, bound in zip(runs, bounds, strict=True)]
    return {
        "set": length_set.name,
        "group_size": len(groups[0]),
        "num_groups": len(groups),
        "schedule": schedule.name,
        "lengths": schedule.lengths,
        "memory": schedule.memory,
        "steps": fmean(run.num_steps for run in runs),
        "steps_to_bound": fmean(over),
        "worst_steps_to_bound": max(over),
        "steps_to_micro": fmean(run.num_steps / m.num_steps for run, m in zip(runs, micro, strict=True)),
        "mean_completion_steps": fmean(run.mean_completion_steps for run in runs),
        "rows_to_full": fmean(run.peak_rows / f.peak_rows for run, f in zip(runs, full, strict=True)),
        "kv_at_once_to_full": fmean(run.peak_kv_tokens / f.peak_kv_tokens for run, f in zip(runs, full, strict=True)),
        "kv_pool_to_full": fmean(run.pool_tokens / f.pool_tokens for run, f in zip(runs, full, strict=True)),
        "kv_held_to_full": fmean(run.peak_held_tokens / f.peak_held_tokens for run, f in zip(runs, full, strict=True)),
        "evictions_a_rollout": fmean(run.num_evictions / len(g) for run, g in zip(runs, groups, strict=True)),
        "reread_share": fmean(run.reread_tokens / sum(each) for run, each in zip(runs, lengths, strict=True)),
    }
