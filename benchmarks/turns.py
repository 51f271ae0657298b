"""Advantages of turns (GiGPO) against those of rollouts (GRPO), on sums that are asked column by column.

    python -m benchmarks turns                    five paired seeds of each arm, to 90 %: some ten minutes of one core
    python -m benchmarks turns --minutes 30       those that fit; the same command goes on
    python -m benchmarks turns --arms GRPO        these alone: a second process may make the others
    python -m benchmarks turns --out benchmarks/results/amd-zen-4/turns    goes on with those that are stored
    python -m benchmarks turns --quick            one step of each arm

GRPO is the recipe `systems/gigpo` without its shape: the same questions, 16 rollouts each, and the same rate.
All run on one thread and end once they hold the accuracy. Only training counts.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks import command
from benchmarks.claims import verdict
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import Json, Time, over_text, speedup
from benchmarks.timing import Say
from benchmarks.when_pods_helps.cells import Limits, Log, key_of
from benchmarks.when_pods_helps.harness import Marks, run_cell
from benchmarks.when_pods_helps.map import make_missing, new_run_parser
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig

BASELINE = "GRPO"
ARMS: Mapping[str, tuple[str, Sequence[str]]] = {
    BASELINE: ("columns", ("rollouts.num_rollouts=16", "select.rule=keep_all", "select.num_kept=16")),
    "GiGPO": ("systems/gigpo", ()),
}
"""Name -> recipe, and what replaces its options. They differ in `loss.shape` alone."""
SEEDS = range(5)
MARKS = Marks(targets=(0.5, 0.9), growth=1.15)
TARGET = MARKS.targets[-1]
LIMITS = Limits(accuracy=TARGET, cpu_seconds=180.0)
CLOCKS = {"step": "steps", "tokens": "generated tokens", "cpu_seconds": "CPU seconds"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsRun:
    """One run."""

    arm: str
    seed: int

    @property
    def title(self) -> str:
        """It in words."""
        return f"{self.arm}, seed {self.seed}"

    @property
    def key(self) -> str:
        """The same for equal runs, in this process and in others."""
        return key_of(self)

    def config(self) -> RunConfig:
        """What is trained."""
        recipe, changes = ARMS[self.arm]
        return load_config(recipe, ["threads=1", 'model.device="cpu"', f"seed={self.seed}", *changes])


def main(arguments: Sequence[str]) -> None:
    parser = new_run_parser("turns", __doc__, quick="one step of each arm, nothing kept", part="arms", parts=ARMS)
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Make the missing runs, then sum up all that there are."""
    if options.quick:
        log = Log(None)
        for arm in ARMS:
            run_cell(TurnsRun(arm=arm, seed=0), Limits(accuracy=TARGET, steps=1), log, say, MARKS)
        return {"quick": True, **summarize(log)}
    log = Log((options.out or command.ROOT / "runs" / "turns") / "runs.jsonl")
    arms = options.arms or list(ARMS)
    wanted = [TurnsRun(arm=arm, seed=seed) for seed in SEEDS for arm in arms]
    make_missing(lambda: next_run(wanted, log), options.minutes, say, MARKS)
    return {"quick": False, **summarize(Log(log.file))}


def next_run(wanted: Sequence[TurnsRun], log: Log) -> tuple[TurnsRun, Limits, Log, int] | None:
    """The next run, its limits, the log, and how many are missing; None: none is."""
    left = [each for each in wanted if not log.holds(each, LIMITS)]
    return (left[0], LIMITS, log, len(left)) if left else None


def summarize(log: Log) -> Json:
    """All figures.

    Returns:
        "arms": name -> "seeds", "start" and "best" (means over them), "to": clock -> the cost of `TARGET` per seed,
        None where it was not reached, and "over": clock -> how many times cheaper than `BASELINE`, on common seeds.
    """
    made = {arm: {s: r for s in SEEDS if (r := log.records.get(TurnsRun(arm=arm, seed=s).key))} for arm in ARMS}
    records = [record for own in made.values() for record in own.values()]
    return {
        "target": TARGET,
        "num_runs": len(records),
        "num_wanted": len(ARMS) * len(SEEDS),
        "commits": sorted({record["commit"] for record in records}),
        "max_load": max((record["load"] for record in records), default=0.0),
        "arms": {arm: _arm(own, made[BASELINE]) for arm, own in made.items() if own},
    }


def _arm(own: Mapping[int, Json], base: Mapping[int, Json]) -> Json:
    common = sorted(own.keys() & base.keys())
    return {
        "seeds": sorted(own),
        "start": round(statistics.mean(record["points"]["accuracy"][0] for record in own.values()), 4),
        "best": round(statistics.mean(max(record["points"]["accuracy"]) for record in own.values()), 4),
        "to": {
            clock: [_time(record, clock)[0] if _time(record, clock)[1] else None for record in own.values()]
            for clock in CLOCKS
        },
        "over": {
            clock: speedup(
                [_time(base[seed], clock) for seed in common],
                [_time(own[seed], clock) for seed in common],
                MARKS.growth,
            )
            for clock in CLOCKS
            if common and own is not base
        },
    }


def _time(record: Json, clock: str) -> Time:
    """What a run had spent at the accuracy, or all that it has."""
    found = record["reached"][f"{TARGET:g}"]
    return (found[clock], True) if found else (record["points"][clock][-1], False)


def table(result: Json) -> str:
    """A row per arm, then what they say."""
    rows, lines = [], []
    for arm, own in result["arms"].items():
        steps = ", ".join("–" if step is None else f"{step:g}" for step in own["to"]["step"])
        rows.append([arm, steps, *(over_text(own["over"][clock]) if own["over"] else "1" for clock in CLOCKS)])
        if own["over"]:
            said = ", ".join(f"{verdict(own['over'][clock])} by {name}" for clock, name in CLOCKS.items())
            lines.append(f"{arm} against {BASELINE}: {said}.")
    starts = statistics.mean(own["start"] for own in result["arms"].values())
    note = (
        f"How many times cheaper than {BASELINE}, from {starts:.0%} until {result['target']:.0%} of the held-out sums "
        f"are right, with the 95 % interval; a dash: not reached. {result['num_runs']} of {result['num_wanted']} runs "
        "are made."
    )
    head = ("arm", f"steps to {result['target']:.0%}", *CLOCKS.values())
    return "\n\n".join([markdown_table(head, rows), note, *lines])
