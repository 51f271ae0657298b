"""What `auto` gains over every fixed size, and what of it: CPU seconds, tokens and cost to 90 % by start accuracy.

    python -m benchmarks worth                  all runs that are missing: hours
    python -m benchmarks worth --minutes 30     those that fit, by their worth; the same command goes on
    python -m benchmarks worth --starts 4% 18%  from these alone: a second process may make the others
    python -m benchmarks worth --minutes 0      none: the tables of what is there
    python -m benchmarks worth --out benchmarks/results/amd-zen-4/worth    goes on with those that are stored
    python -m benchmarks worth --quick          some steps of two arms, nothing tuned, some seconds

The arms are GRPO with 4 to 64 rollouts per question, PODS 64 → 16, `auto`, and two steps between GRPO 16 and `auto`:
GRPO 16 that trains on mixed groups alone, and GRPO 16 with `max_signal`. Runs, rates and limits are as in
`when-pods-helps`, whose tuning runs count; the seeds are others. Finished runs are lines of a file and are not made
again.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from itertools import pairwise, product

from benchmarks import command, files, runs
from benchmarks.figures.markdown import table
from benchmarks.paired import Json, over_text, speedup
from benchmarks.runs import MARKS, Limits, Log, cost, facts_of, time_of
from benchmarks.timing import Say
from benchmarks.when_pods_helps.cells import AUTO, MIXED, SIGNAL, Cell
from benchmarks.when_pods_helps.grid import ACCURACY, RATES, STARTS, plan_of

ARMS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "PODS 64 → 16": (64, 16, ()),
    "auto": (64, 16, AUTO),
    "GRPO 16": (16, 16, ()),
    "GRPO 8": (8, 8, ()),
    "GRPO 16, mixed groups": (16, 16, MIXED),
    "GRPO 16 + max_signal": (16, 16, SIGNAL),
    "GRPO-GA 64": (64, 64, ()),
    "GRPO 32": (32, 32, ()),
    "GRPO 4": (4, 4, ()),
}
"""Name -> n, m and further options; the reference of `grid.limits` first."""
MAIN = tuple(ARMS)[:4]
MAIN_SEEDS, OTHER_SEEDS = (20, 21, 22, 23, 24), (20, 21, 22)
"""Those of the map, and those with which constants were chosen, are none of them."""
REGIMES = (*product(STARTS, (0.04, 0.0), (2,)), *product(("4%",), (0.04, 0.0), (3,)))
"""Start, KL weight and digits."""
LADDER = ("GRPO 16", "GRPO 16, mixed groups", "GRPO 16 + max_signal", "auto")
GAINS = ("no training without signal", "m", "n", "all three")
"""What changes from each arm of the ladder to the next, and from the first to the last."""
PRICES = (0.1, 0.3, 1.0, 2.3)
CLOCKS = ("cpu_seconds", "step", "tokens", "trained", "decode_steps", *(f"cost at {price:g}" for price in PRICES))
_NAMES = {"cpu_seconds": "CPU seconds", **{f"cost at {price:g}": f"cost at g = {price:g}" for price in PRICES}}
_QUICK_LIMITS = Limits(accuracy=0.8, cpu_seconds=2.0)


def main(arguments: Sequence[str]) -> None:
    parser = runs.new_parser(
        "worth", __doc__, quick="some steps of two arms, nothing tuned, nothing kept", parts=STARTS
    )
    command.measure(parser, arguments, run, tables)


def cells() -> list[Cell]:
    """All runs; first, with three seeds, the main arms and the steps to `auto`; the rates are not theirs yet."""
    names = tuple(ARMS)
    blocks = [(OTHER_SEEDS, names[:6]), (MAIN_SEEDS[3:], MAIN), (OTHER_SEEDS, names[6:])]
    return [
        Cell(start=start, num_rollouts=n, num_kept=m, more=more, rate=RATES[0], seed=seed, digits=digits, kl=kl)
        for seeds, arms in blocks
        for seed, (start, kl, digits), (n, m, more) in product(seeds, REGIMES, map(ARMS.__getitem__, arms))
    ]


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Make the missing runs, then sum up all that there are. The map's tuning runs count: steps hang on no machine."""
    quick = [cell for cell in cells() if (cell.start, cell.kl, cell.digits) == ("4%", 0.0, 2)][:3]
    elsewhere: Json = {}
    for stored in sorted(files.RESULTS.glob("*/when_pods_helps/tuning.jsonl")):
        elsewhere = Log(stored).records | elsewhere
    records, _ = runs.make(
        plan_of(cells()),
        "worth",
        options,
        say,
        dict.fromkeys(quick, _QUICK_LIMITS),
        of=lambda cell: cell.start in (options.starts or STARTS),
        tuned_elsewhere=elsewhere,
    )
    return {"quick": options.quick, **summarize(records)}


def summarize(records: dict[Cell, Json]) -> Json:
    """For every regime its arms: each clock's values to the accuracy by seed, and how many times auto's they are."""
    names = {arm: name for name, arm in ARMS.items()}
    regimes: dict[tuple[str, float, int], dict[str, dict[int, Json]]] = {}
    for cell, record in records.items():
        arms = regimes.setdefault((cell.start, cell.kl, cell.digits), {})
        arms.setdefault(names[cell.num_rollouts, cell.num_kept, cell.more], {})[cell.seed] = record
    ladders = {regime: _ladders(arms) for regime, arms in regimes.items()}
    every = [of_seed for found in ladders.values() for of_seed in found]
    ended = [of_seed for of_seed in every if all(cost(record, ACCURACY, "step") is not None for record in of_seed)]
    return {
        **facts_of(records, len(cells())),
        "gains": {"num_left_out": len(every) - len(ended), "all": _gains(ended)},
        "regimes": [
            {
                **{"start": regime[0], "kl": regime[1], "digits": regime[2]},
                "arms": {name: _arm(own, arms) for name, own in arms.items()},
                "gains": _gains(ladders[regime]),
            }
            for regime, arms in regimes.items()
        ],
    }


def _arm(own: dict[int, Json], arms: dict[str, dict[int, Json]]) -> Json:
    return {
        "rate": next(iter(own.values()))["rate"],
        "seeds": list(own),
        "num_rollouts": round(statistics.mean(_rollouts_of_a_question(record) for record in own.values()), 1),
        "to": {clock: [cost(record, ACCURACY, clock) for record in own.values()] for clock in CLOCKS},
        "auto_over": {clock: _over(own, arms.get("auto", {}), clock) for clock in CLOCKS},
    }


def _over(base: dict[int, Json], arm: dict[int, Json], clock: str) -> Json | None:
    """How many times sooner, or cheaper, an arm is than the base, on the seeds of both; None: there are none."""
    seeds = [seed for seed in base if seed in arm]
    if base is arm or not seeds:
        return None
    return _speedup([base[seed] for seed in seeds], [arm[seed] for seed in seeds], clock)


def _speedup(base: Sequence[Json], arm: Sequence[Json], clock: str) -> Json:
    theirs, own = ([time_of(record, ACCURACY, clock) for record in of_arm] for of_arm in (base, arm))
    return {**speedup(theirs, own, MARKS.growth), "num_seeds": len(base)}


def _ladders(arms: dict[str, dict[int, Json]]) -> list[list[Json]]:
    """For each seed that all arms of the ladder have, their runs."""
    own = [arms.get(name, {}) for name in LADDER]
    return [[runs[seed] for runs in own] for seed in own[0] if all(seed in runs for runs in own)]


def _gains(ladders: Sequence[Sequence[Json]]) -> dict[str, list[Json]]:
    """Clock -> how many times sooner or cheaper each change of `GAINS` makes it; empty: no seed has all arms."""
    arms = [*zip(*ladders, strict=True)]
    pairs = [*pairwise(arms), (arms[0], arms[-1])] if arms else []
    return {clock: [_speedup(*pair, clock) for pair in pairs] for clock in CLOCKS if pairs}


def _rollouts_of_a_question(record: Json) -> float:
    """Mean n of a run; every step of the recipe asks eight questions."""
    return float(record["points"]["rollouts"][-1] / record["points"]["step"][-1] / 8)


def tables(result: Json) -> str:
    """All of it, by CPU seconds and at every price."""
    return "\n\n".join([_ratios(result, ("cpu_seconds", *CLOCKS[5:])), gains(result)])


def page(result: Json) -> str:
    """How many times sooner and cheaper auto is than each arm, by two clocks, and how many runs there are."""
    made, every = result["num_runs"], result["num_wanted"]
    folder = files.path_of("worth", result["processor"]).with_suffix("").relative_to(files.ROOT)
    rest = f"; `python -m benchmarks worth --out {folder}` makes the other {every - made}" if made < every else ""
    note = (
        "95 % intervals over paired seeds, and their number; a dash: not measured. "
        f"{made} of {every} runs are made{rest}. The machine's load was {result['max_load']:.0f} at most."
    )
    return f"{_ratios(result, ('cpu_seconds', 'cost at 0.3'))}\n\n{note}"


def _ratios(result: Json, clocks: Sequence[str]) -> str:
    arms = [name for name in ARMS if name != "auto"]
    return "\n\n".join(
        f"{_name(clock)}: an arm's over those of `auto`\n\n"
        + table(
            ["start", *arms],
            [[_title(each), *(_text(_over_of(each, arm, clock)) for arm in arms)] for each in result["regimes"]],
        )
        for clock in clocks
    )


def gains(result: Json) -> str:
    """For two clocks a row per start, and one over all of them."""
    together, left_out = result["gains"]["all"], result["gains"]["num_left_out"]
    tables = []
    for clock in ("cpu_seconds", "cost at 0.3"):
        rows = [[_title(each), *map(_text, each["gains"][clock])] for each in result["regimes"] if each["gains"]]
        rows += [["all together", *map(_text, together[clock])]] if together else []
        tables.append(table([_name(clock), *GAINS], rows))
    note = f"All together: without the {left_out} seeds on which one of the four arms did not get there."
    return "\n\n".join([*tables, note])


def _over_of(regime: Json, arm: str, clock: str) -> Json | None:
    found: Json | None = regime["arms"].get(arm, {}).get("auto_over", {}).get(clock)
    return found


def _title(regime: Json) -> str:
    start = regime["start"].replace("%", " %")
    return f"{start}{', KL' if regime['kl'] else ''}{', 3 digits' if regime['digits'] == 3 else ''}"


def _name(clock: str) -> str:
    return _NAMES.get(clock, clock)


def _text(over: Json | None) -> str:
    return "–" if over is None else over_text(over, f"; {over['num_seeds']}")
