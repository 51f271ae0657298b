"""Steps, KV memory and seconds of full-group, micro-group, continuous, probed and dynamic schedules.

    python -m benchmarks infinite-sampling            groups of 32, 128 and 512, then the engine: about an hour
    python -m benchmarks infinite-sampling --quick    groups of 32 and a small model, about half a minute

A group of G rollouts runs on g = G/4 slots under each schedule, in the simulator that runs the engine's own scheduler
objects. Steps are compared with the least that g slots can take, max(ceil(sum L / g), max L), and memory with
full-group decoding's, counted in two ways:

    KV at once   the largest product of rows and longest row at one time: the stricter comparison, since full-group
                 decoding is taken to free a row in the step in which its rollout ends
    KV pool      most rows times the longest row ever: a pool that never shrinks; a dynamic schedule divides its pool
                 anew, so there it is the same as at once

A schedule knows of the lengths: nothing; all ("perfect"); what an online regression predicts from the prompt's length
("prompt"); or what it predicts after the first tokens ("tokens"). The second part runs the engine itself on skewed
lengths (`seconds.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from benchmarks import command
from benchmarks.infinite_sampling.lengths import SETS, LengthSet, Recorded
from benchmarks.infinite_sampling.paper import make_schedule
from benchmarks.infinite_sampling.predict import KnownLengths, LengthRegression, Predictor
from benchmarks.infinite_sampling.simulate import Simulation, least_steps, simulate
from benchmarks.timing import Say
from podsrl.generate.schedule.job import Limits

GROUP_SIZES = (32, 128, 512)
SHOWN_GROUP_SIZE = 128
SLOTS_SHARE = 4
"""G / g."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One line of the table."""

    name: str
    """As `make_schedule` reads it."""
    knows: Literal["nothing", "perfect", "prompt", "tokens"] = "nothing"
    memory: Literal["slots", "half"] = "slots"
    """What bounds a dynamic schedule: the memory of g rows as long as the longest, or half of full-group's peak."""

    @property
    def is_dynamic(self) -> bool:
        return self.name.startswith("dynamic")


FULL, MICRO = Schedule("full"), Schedule("micro")
SCHEDULES = (
    FULL,
    MICRO,
    Schedule("micro+ljf", "perfect"),
    Schedule("continuous"),
    Schedule("continuous+sjf", "perfect"),
    Schedule("continuous+ljf", "perfect"),
    Schedule("continuous+grouped", "perfect"),
    Schedule("continuous+sjf", "prompt"),
    Schedule("continuous+ljf", "prompt"),
    Schedule("continuous+grouped", "prompt"),
    Schedule("probed+sjf", "tokens"),
    Schedule("probed+ljf", "tokens"),
    Schedule("probed+grouped", "tokens"),
    Schedule("dynamic", "nothing", "slots"),
    Schedule("dynamic", "nothing", "half"),
    Schedule("dynamic+ljf", "perfect", "half"),
    Schedule("dynamic+ljf", "prompt", "half"),
    Schedule("dynamic+sjf", "tokens", "half"),
    Schedule("dynamic+ljf", "tokens", "half"),
)


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("infinite-sampling", __doc__)
    parser.add_argument("--quick", action="store_true", help="groups of 32, and a small model")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Simulate every schedule on every set, and time some of them in the engine."""
    from benchmarks.infinite_sampling.seconds import measure_engine

    simulated = []
    for name, make in SETS.items():
        for group_size in GROUP_SIZES[:1] if options.quick else GROUP_SIZES:
            say(f"simulating groups of {group_size}, lengths of {name}")
            simulated += simulate_set(make(group_size))
    return {"simulated": simulated, "engine": measure_engine(options.quick, say)}


def simulate_set(length_set: LengthSet) -> list[dict[str, Any]]:
    """Run every schedule on every group of a set -> one row per schedule, means over groups."""
    learned = {looks: _learned(length_set, looks) for looks in (False, True)}
    full = [_simulate(length_set, group, FULL, learned[False], None) for group in length_set.groups]
    micro = [_simulate(length_set, group, MICRO, learned[False], None) for group in length_set.groups]
    rows = []
    for schedule in SCHEDULES:
        looks = schedule.knows == "tokens"
        if looks and length_set.probe_at is None:
            continue
        pairs = zip(length_set.groups, full, strict=True)
        runs = [_simulate(length_set, group, schedule, learned[looks], whole) for group, whole in pairs]
        rows.append(_row(length_set, schedule, runs, full, micro))
    return rows


def simulate_group(length_set: LengthSet, group: Sequence[Recorded], schedule: Schedule) -> Simulation:
    """Simulate one group under one schedule, with a predictor that has learned from the set's other rollouts."""
    learned = _learned(length_set, schedule.knows == "tokens")
    full = _simulate(length_set, group, FULL, learned, None)
    return _simulate(length_set, group, schedule, learned, full)


def run_group(
    length_set: LengthSet, group: Sequence[Recorded], name: str, limits: Limits, predictor: Predictor | None
) -> Simulation:
    """Simulate one group under one schedule; without a predictor the lengths are known."""
    jobs = length_set.jobs(group)
    lengths = [row.length for row in group]
    if predictor is None:
        predictor = KnownLengths(dict(zip(jobs, lengths, strict=True)))
    features = length_set.features_of(group, jobs)
    return simulate(
        make_schedule(name, limits, predictor),
        jobs,
        lengths,
        probe_at=predictor.probe_at,
        look=lambda probed: predictor.observe(probed, features(probed)),
    )


def _learned(length_set: LengthSet, looks: bool) -> LengthRegression:
    """A predictor trained on the rollouts to learn from; it predicts each before it learns from it."""
    predictor = LengthRegression(length_set.probe_at if looks else None)
    if length_set.learned:
        run_group(length_set, length_set.learned, "continuous", Limits(num_slots=64), predictor)
    return predictor


def _simulate(
    length_set: LengthSet, group: Sequence[Recorded], schedule: Schedule, learned: Predictor, full: Simulation | None
) -> Simulation:
    num_slots, num_tokens = len(group) // SLOTS_SHARE, None
    if schedule.is_dynamic and full is not None:
        num_tokens = num_slots * full.longest_row if schedule.memory == "slots" else full.peak_kv_tokens // 2
    if schedule.is_dynamic or schedule == FULL:
        num_slots = len(group)
    limits = Limits(num_slots=num_slots, num_tokens=num_tokens)
    predictor = None if schedule.knows == "perfect" else deepcopy(learned)
    return run_group(length_set, group, schedule.name, limits, predictor)


def _row(
    length_set: LengthSet,
    schedule: Schedule,
    runs: Sequence[Simulation],
    full: Sequence[Simulation],
    micro: Sequence[Simulation],
) -> dict[str, Any]:
    lengths = [[row.length for row in group] for group in length_set.groups]
    bounds = [least_steps(each, len(each) // SLOTS_SHARE) for each in lengths]
    over = [run.num_steps / bound for run, bound in zip(runs, bounds, strict=True)]
    pools = [run.peak_kv_tokens if schedule.is_dynamic else run.pool_tokens for run in runs]
    return {
        "set": length_set.name,
        "group_size": len(lengths[0]),
        "num_groups": len(lengths),
        "schedule": schedule.name,
        "knows": schedule.knows,
        "memory": schedule.memory if schedule.is_dynamic else None,
        "steps": fmean(run.num_steps for run in runs),
        "steps_to_bound": fmean(over),
        "worst_steps_to_bound": max(over),
        "steps_to_micro": _ratio([run.num_steps for run in runs], [run.num_steps for run in micro]),
        "mean_completion_steps": fmean(run.mean_completion_steps for run in runs),
        "rows_to_full": _ratio([run.peak_rows for run in runs], [run.peak_rows for run in full]),
        "kv_at_once_to_full": _ratio([run.peak_kv_tokens for run in runs], [run.peak_kv_tokens for run in full]),
        "kv_pool_to_full": _ratio(pools, [run.pool_tokens for run in full]),
        "kv_held_to_full": _ratio([run.peak_held_tokens for run in runs], [run.peak_held_tokens for run in full]),
        "evictions_per_rollout": _ratio([run.num_preemptions for run in runs], [len(each) for each in lengths]),
        "reread_share": _ratio([run.recomputed_tokens for run in runs], [sum(each) for each in lengths]),
    }


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Mean over groups of each group's ratio."""
    return fmean(a / b for a, b in zip(ours, theirs, strict=True))
