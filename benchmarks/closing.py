"""What closing a group saves when its choice is certain, with memory for all rollouts and with 6 MiB.

    python -m benchmarks closing                 four steps of 48 runs: ten minutes
    python -m benchmarks closing --out runs/c    keeps what is finished; the same command goes on
    python -m benchmarks closing --quick         two steps of a seed, nothing kept

The recipe `pods` with 64 → 16 and `correct` as its only reward, from two starts. Each arm has the same seeds, draws the
same tokens and keeps the same rewards, so all arms learn alike and what a step takes is all that differs: the ratios
are of four steps, paired by seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks import command
from benchmarks.cells import Cell
from benchmarks.figures.markdown import table
from benchmarks.our_arm import OurArm
from benchmarks.paired import Finished, Json, Time, over_text, speedup
from benchmarks.timing import Say, one_thread

ALL, CLOSED, SMALL, BOTH = "all at once", "closed when certain", "in 6 MiB", "in 6 MiB, closed when certain"
FEW, CERTAIN = "rollouts.kv_cache_bytes=6MiB", 'systems="certain"'
ARMS: dict[str, tuple[str, ...]] = {
    ALL: (),
    CLOSED: (CERTAIN,),
    SMALL: (FEW, 'rollouts.scheduler="dynamic"'),
    BOTH: (FEW, CERTAIN, 'rollouts.scheduler="dynamic+breadth"'),
}
"""Name -> further options."""
LINES = ((CLOSED, ALL), (SMALL, ALL), (BOTH, SMALL))
"""Arm, and the arm over whose cost that of the first stands."""
STARTS = ("4%", "59%")
SEEDS, NUM_STEPS = range(70, 76), 4
CLOCKS = {
    "tokens": "generated tokens",
    "forwarded": "token forwards",
    "decode_steps": "decode steps",
    "cpu_seconds": "CPU seconds",
}
"""What is counted over the steps of a run; "trained" tokens and the "peak" of the memory in bytes stand beside it."""
SHOWN = ("tokens", "decode_steps", "cpu_seconds")


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("closing", __doc__)
    parser.add_argument("--quick", action="store_true", help="two steps of a seed, nothing kept")
    parser.add_argument("--out", type=Path, help="folder of what is finished, in which another call goes on")
    command.measure(parser, arguments, run)


def cell(start: str, name: str, seed: int) -> Cell:
    """A run of an arm."""
    more = ("task.rewards={correct=1.0}", *ARMS[name])
    return Cell(start=start, num_rollouts=64, num_kept=16, rate=3e-4, seed=seed, more=more)


def taken(own: Cell, num_steps: int) -> Json:
    """What so many steps of a run took."""
    found = dict.fromkeys((*CLOCKS, "trained", "peak"), 0.0)
    with one_thread(), closing(OurArm(own.config())) as arm:
        for _ in range(num_steps):
            found["cpu_seconds"] += arm.step().cpu_seconds
            found["decode_steps"] += arm.num_decode_steps
            for name in ("generated", "forwarded", "trained"):
                found["tokens" if name == "generated" else name] += arm.metrics[f"tokens/{name}"]
            found["peak"] = max(found["peak"], arm.metrics["memory/peak_generate_bytes"])
    return found


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """All runs, seed by seed, then the ratios by start and arm."""
    num_steps, seeds = (2, SEEDS[:1]) if options.quick else (NUM_STEPS, SEEDS)
    finished = Finished(options.out and options.out / "finished.jsonl")
    made: dict[str, dict[str, list[Json]]] = {start: {name: [] for name in ARMS} for start in STARTS}
    for seed in seeds:
        for start in STARTS:
            for name in ARMS:
                own = cell(start, name, seed)
                say(f"seed {seed} of {seeds[0]} to {seeds[-1]}: {own.title}")
                record = finished.once(f"{num_steps} {own.key}", partial(taken, own, num_steps))
                made[start][name].append(record)
    return {
        "quick": options.quick,
        "steps": num_steps,
        "seeds": len(seeds),
        "starts": {start: _summary(arms) for start, arms in made.items()},
    }


def _summary(arms: Mapping[str, Sequence[Json]]) -> Json:
    def times(name: str, clock: str) -> list[Time]:
        return [(each[clock], True) for each in arms[name]]

    return {
        "arms": {name: {key: [each[key] for each in own] for key in own[0]} for name, own in arms.items()},
        "lines": [
            {
                "arm": arm,
                "over": base,
                **{clock: speedup(times(arm, clock), times(base, clock), 1.0) for clock in CLOCKS},
            }
            for arm, base in LINES
        ],
    }


def page(result: Json) -> str:
    """A row per start and line."""
    lines = [(start, line) for start, found in result["starts"].items() for line in found["lines"]]
    rows = [
        [start.replace("%", " %"), line["arm"], line["over"], *(over_text(line[clock]) for clock in SHOWN)]
        for start, line in lines
        if (line["arm"], line["over"]) in LINES
    ]
    peak = max(max(arms[ALL]["peak"]) for arms in (found["arms"] for found in result["starts"].values()))
    note = (
        f"{result['steps']} steps of {result['seeds']} paired seeds, with 95 % intervals. All at once, keys and values "
        f"took {peak / 2**20:.0f} MiB at most."
    )
    table_of = table(["correct at the start", "arm", "over", *(CLOCKS[clock] for clock in SHOWN)], rows, num_left=3)
    return f"{table_of}\n\n{note}"
