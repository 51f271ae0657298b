"""Which part of PODS is worth what: the choice, the smaller update, the centring; and which of equals to keep.

    python -m benchmarks choice                 all runs that are missing: an hour
    python -m benchmarks choice --minutes 30    those that fit, seed by seed; the same command goes on
    python -m benchmarks choice --minutes 0     none: the tables of what is there
    python -m benchmarks choice --out benchmarks/results/amd-zen-3/choice    goes on with those that are stored
    python -m benchmarks choice --quick         two short runs, nothing tuned, nothing kept

All of this was decided before the runs:

- Task: the recipe `pods` (sums of two digits, 4 % correct at the start, no KL penalty, 8 prompts per step), n = 64 and
  m = 16. The arms differ in what `ARMS` says and in the rate, and in nothing else.
- Arms: PODS; *random*, 16 of the 64 at random; *advantages of all 64*, PODS's rows with advantages from the rewards of
  all 64; *mask*, the same rows with the same advantages, where all 64 rows of every prompt go through the model and
  the others count nothing; GRPO with 16 and with 64; and PODS with each `select.ties`. The update skips rows whose
  advantage is 0, so the mask gives them `NOTHING`, which is lost in the rounding of the gradients beside it.
- Rates: each arm has the better one of 3e-4 and 6e-4 by the steps to 90 % on four seeds that count for nothing else.
  1.5e-4 took half as many steps again for every arm, and two seeds, as earlier, gave the mask and advantages of all
  64 two rates, which cannot be: their gradients differ by a factor alone, which AdamW takes out. So the mask has the
  rate of these advantages. An order of equals has that of PODS: it changes neither the number of rows nor their
  advantages. GRPO 64 has 3e-4: in earlier runs 6e-4 failed in one of five from this start.
- Clock: CPU seconds to 90 % decide; steps, trained tokens, and the same to 80 %, stand beside them. The 256 held-out
  questions are the same for all, and evaluations do not count. A run ends at 40 CPU seconds.
- Size: a factor of 1.25 is the smallest difference worth knowing. In eight earlier seeds the
  logarithm of GRPO 16 over PODS has a standard deviation of 0.20, for which six seeds give a half-width of 1.25. The
  other arms may spread more: twelve seeds are made, and a verdict takes all of them.
- Order: all arms of a seed, one after the other, then the next seed; the first arm rotates with the seed.

One thing was decided after twelve seeds of all arms, by their spread. At 6e-4, the better rate of some arms, runs of
the same arm differ by a factor of two, and one did not get there, while 3e-4 is calm. So the arms are also compared all
at 3e-4, on the same seeds and with the same verdict.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks import command, runs
from benchmarks.cells import Cell, name_of
from benchmarks.decided import NUM_DECIDE, times_over, turned, verdict
from benchmarks.figures.markdown import table
from benchmarks.paired import Json, over_text
from benchmarks.runs import Limits, Log, Plan, best_rate, cost, facts_of
from benchmarks.timing import Say
from podsrl.select.groups import select_groups
from podsrl.select.variance import max_variance
from podsrl.types import Group, Selection
from podsrl.update.advantage import std

START, N, M = "4%", 64, 16
PODS, RANDOM, OF_ALL, MASK = "PODS 64 → 16", "random 16 of 64", "advantages of all 64", "mask"
TIES = {f"ties: {ties}": (f'select.ties="{ties}"',) for ties in ("short", "likely", "unlikely")}
ARMS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    PODS: (N, M, ()),
    MASK: (N, N, ('loss.advantage="benchmarks.choice:masked"',)),
    RANDOM: (N, M, ('select.rule="random"',)),
    "GRPO 16": (M, M, ()),
    OF_ALL: (N, M, ('loss.advantage="benchmarks.choice:of_all"',)),
    **{name: (N, M, more) for name, more in TIES.items()},
    "GRPO 64": (N, N, ()),
}
"""Name -> n, m and further options."""
LINES = (
    ("the choice", RANDOM, PODS),
    ("the smaller update", MASK, OF_ALL),
    ("the centring", OF_ALL, PODS),
    ("update and centring", MASK, PODS),
    ("PODS beside GRPO 16", "GRPO 16", PODS),
    ("PODS beside GRPO 64", "GRPO 64", PODS),
    *(("which of equals", name, PODS) for name in TIES),
)
"""Question, arm, and the arm over whose cost that of the first stands."""
SHOWN = ("the choice", "the smaller update", "the centring", "which of equals")
"""On the page; `when-pods-helps` has the others."""
RATES, TUNE_SEEDS, MOST_TUNING_STEPS = (3e-4, 6e-4), range(100, 104), 100
TUNED, SAME = 0.0, RATES[0]
AT = {TUNED: "each at its own rate", SAME: f"all at {SAME:g}"}
"""Rate of a planned run -> what it says; `TUNED`: that of its arm."""
TUNED_AS = {MASK: OF_ALL, **dict.fromkeys(TIES, PODS)}
NOTHING = 1e-15
"""Advantage of a row that goes through the model and counts nothing."""
SEEDS = range(30, 30 + NUM_DECIDE)
"""Those of other benchmarks and of tuning are none of them."""
CLOCKS = {"cpu_seconds": "CPU seconds", "step": "steps", "trained": "trained tokens"}
DECIDES, OTHER = 0.9, 0.8
LIMITS = Limits(accuracy=DECIDES, cpu_seconds=40.0)


def of_all(groups: Sequence[Group], selections: Sequence[Selection]) -> list[Tensor]:
    """Advantages of the kept rollouts from the rewards of all valid ones of their group."""
    return [_of_all(group)[list(own.kept)] for group, own in zip(groups, selections, strict=True)]


def masked(groups: Sequence[Group], selections: Sequence[Selection]) -> list[Tensor]:
    """The same where max-variance keeps a rollout; elsewhere `NOTHING`, and in a group without signal."""
    found = []
    for advantages, own, chosen in zip(
        of_all(groups, selections), selections, select_groups(groups, max_variance, M), strict=True
    ):
        counts = torch.tensor([i in chosen.kept for i in own.kept]) & (advantages != 0)
        found.append(torch.where(counts, advantages, NOTHING))
    return found


def _of_all(group: Group) -> Tensor:
    """[n]; 0 for what is not valid."""
    is_valid = torch.tensor([rollout.is_valid for rollout in group.rollouts], dtype=torch.bool)
    found = torch.zeros(len(is_valid), dtype=torch.float64)
    rewards = torch.tensor([rollout.reward for rollout in group.rollouts if rollout.is_valid], dtype=torch.float64)
    if len(rewards) > 1:
        found[is_valid] = std(rewards)
    return found


def main(arguments: Sequence[str]) -> None:
    quick = "two short runs, nothing tuned, nothing kept"
    parser = runs.new_parser("choice", __doc__, quick=quick, part="arms", parts=ARMS)
    command.measure(parser, arguments, run)


def cell(name: str, seed: int, rate: float = TUNED) -> Cell:
    """A run of an arm."""
    n, m, more = ARMS[name]
    return Cell(start=START, num_rollouts=n, num_kept=m, more=more, rate=rate, seed=seed)


def cells() -> list[Cell]:
    """All runs at the arms' own rates, then at the same one: seed by seed every arm, another one first each time."""
    return [cell(name, seed, rate) for rate in AT for k, seed in enumerate(SEEDS) for name in turned(tuple(ARMS), k)]


def tuned(own: Cell, tuning: Log) -> tuple[float, tuple[Cell, Limits] | None]:
    """The rate of a run's arm so far, and the tuning run that is to be made next; None: the rate is known."""
    name = name_of(own, ARMS)
    if own.rate != TUNED or name == "GRPO 64":
        return own.rate or RATES[0], None
    as_arm = TUNED_AS.get(name, name)
    rate, run = best_rate(
        lambda rate, seed: cell(as_arm, seed).at(rate), RATES, tuning, DECIDES, MOST_TUNING_STEPS, TUNE_SEEDS
    )
    return rate, run and (run[0], replace(LIMITS, steps=run[1]))


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Make the missing runs, then sum up all that there are."""
    plan = Plan(runs=cells(), tuned=tuned, limits=lambda own, log, tuning: LIMITS)
    records, tuning = runs.make(
        plan,
        "choice",
        options,
        say,
        dict.fromkeys((cell(name, SEEDS[0], SAME) for name in (PODS, MASK)), Limits(accuracy=DECIDES, steps=2)),
        of=lambda own: name_of(own, ARMS) in (options.arms or ARMS),
    )
    return {"quick": options.quick, **summarize(records, tuning)}


def summarize(records: Mapping[Cell, Json], tuning: Log) -> Json:
    """Of each arm its costs by seed; of each line how many times the second arm's cost the first one's is."""
    made: dict[float, dict[str, dict[int, Json]]] = {rate: {name: {} for name in ARMS} for rate in AT}
    for own, record in records.items():
        made[own.rate][name_of(own, ARMS)][own.seed] = record
    return {
        **facts_of(records, len(SEEDS) * len(ARMS) * len(AT)),
        "arms": {
            name: {"at": [_arm(made[rate][name]) for rate in AT if made[rate][name]], "tuning": _tuning(name, tuning)}
            for name in ARMS
        },
        "lines": {
            title: [
                {"question": question, "arm": arm, "over": base, "times": times}
                for question, arm, base in LINES
                if (times := times_over(made[rate][arm], made[rate][base], (OTHER, DECIDES), CLOCKS))
            ]
            for rate, title in AT.items()
        },
    }


def _arm(own: Mapping[int, Json]) -> Json:
    return {
        "rate": next(iter(own.values()))["rate"],
        "seeds": sorted(own),
        "to": {
            f"{target:g}": {clock: [cost(own[seed], target, clock) for seed in sorted(own)] for clock in CLOCKS}
            for target in (OTHER, DECIDES)
        },
        "stages": {
            stage: round(statistics.median(record["stages"][stage] for record in own.values()), 4)
            for stage in ("generate", "update")
        },
    }


def _tuning(name: str, tuning: Log) -> dict[str, list[float | None]]:
    """Rate -> steps to the accuracy on the tuning seeds, None where a run ended before it; empty: not tuned."""
    found = {rate: [tuning.records.get(cell(name, seed).at(rate).key) for seed in TUNE_SEEDS] for rate in RATES}
    return {
        f"{rate:g}": [cost(record, DECIDES, "step") for record in records if record]
        for rate, records in found.items()
        if any(records)
    }


def page(result: Json) -> str:
    """The lines with their verdicts, and the medians of the arms."""
    parts = []
    for title, lines in result["lines"].items():
        head = [title[0].upper() + title[1:], "arm", "over", *CLOCKS.values(), "verdict"]
        rows = []
        for line in (each for each in lines if each["question"] in SHOWN):
            times = [line["times"][f"{DECIDES:g}"][clock] for clock in CLOCKS]
            rows.append([line["question"], line["arm"], line["over"], *map(over_text, times), verdict(times[0])])
        parts.append(table(head, rows, num_left=3))
    arms = []
    for name, both in result["arms"].items():
        for own in both["at"]:
            to = own["to"][f"{DECIDES:g}"]
            got = {clock: [value for value in to[clock] if value is not None] for clock in CLOCKS}
            medians = [f"{statistics.median(of):,.{clock[0] == 'c':d}f}" if of else "–" for clock, of in got.items()]
            arms.append([name, f"{own['rate']:g}", *medians, f"{len(got['step'])} of {len(to['step'])}"])
    of_arms = ["arm", "rate", *(f"median {name}" for name in CLOCKS.values()), "runs that got there"]
    note = (
        f"Costs to {DECIDES:.0%}, with 95 % intervals over paired seeds; the verdict goes by CPU seconds. The runs are "
        f"of commit {', '.join(result['commits'])}; the machine's load was {result['max_load']:.1f} at most."
    )
    return "\n\n".join([*parts, table(of_arms, arms), note])
