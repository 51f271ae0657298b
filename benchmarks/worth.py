"""What `auto` gains over every fixed size, and what of it: CPU seconds, tokens and cost to 90 % by start accuracy.

    python -m benchmarks worth                  all runs that are missing: hours
    python -m benchmarks worth --minutes 30     those that fit, by their worth; the same command goes on
    python -m benchmarks worth --starts 4% 18%  from these alone: a second process may make the others
    python -m benchmarks worth --minutes 0      none: the tables of what is there
    python -m benchmarks worth --out benchmarks/results/amd-zen-4/worth    goes on with those that are stored
    python -m benchmarks worth --quick          some steps of two arms, nothing tuned, some seconds

The arms are GRPO with 4 to 64 rollouts per question, PODS 64 → 16, `auto`, `auto` with costs at which a generated
token is as dear as a trained one (g = 1), and two steps between GRPO 16 and `auto`: GRPO 16 that trains on mixed groups
alone, and GRPO 16 with `max_signal`. Runs, rates and limits are as in `when-pods-helps`, whose tuning runs count; the
seeds are others. Finished runs are lines of a file and are not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from benchmarks import command, files
from benchmarks.figures.markdown import table
from benchmarks.paired import Time, over_text, speedup
from benchmarks.timing import Say, titled
from benchmarks.when_pods_helps.cells import AUTO, DEAR, MIXED, SIGNAL, Cell, Json, Limits, Log
from benchmarks.when_pods_helps.grid import ACCURACY, RATES, STARTS, limits, tuning_runs
from benchmarks.when_pods_helps.harness import GROWTH, run_cell
from benchmarks.when_pods_helps.map import make_missing, new_run_parser, next_runs

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
    "auto at g = 1": (64, 16, DEAR),
}
"""Name -> n, m and further options; the reference of `grid.limits` first."""
MAIN = tuple(ARMS)[:4]
MAIN_SEEDS, OTHER_SEEDS = (20, 21, 22, 23, 24), (20, 21, 22)
"""Those of the map, and those with which constants were chosen, are none of them."""
REGIMES = (*product(STARTS, (0.04, 0.0), (2,)), *product(("4%",), (0.04, 0.0), (3,)))
"""Start, KL weight and digits."""
STEPS = ("GRPO 16, mixed groups", "GRPO 16 + max_signal", "auto")
"""From GRPO 16 on: no training of groups without signal; m; n."""
PRICES = (0.1, 0.3, 1.0, 2.3)
CLOCKS = ("cpu_seconds", "step", "tokens", "trained", "decode_steps", *(f"cost at {price:g}" for price in PRICES))
_NAMES = {"cpu_seconds": "CPU seconds"}
_QUICK_LIMITS = Limits(accuracy=0.8, cpu_seconds=2.0)


def main(arguments: Sequence[str]) -> None:
    parser = new_run_parser("worth", __doc__, quick="some steps of two arms, nothing tuned, nothing kept")
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
    """Make the missing runs, then sum up all that there are."""
    if options.quick:
        log, few = Log(None), [cell for cell in cells() if (cell.start, cell.kl, cell.digits) == ("4%", 0.0, 2)][:3]
        for cell in few:
            run_cell(cell, _QUICK_LIMITS, log, titled(say, cell.arm))
        return {"quick": True, **summarize({cell: log.records[cell.key] for cell in few})}
    folder = options.out or command.ROOT / "runs" / "worth"
    log, tuning = _logs(folder)
    own = [cell for cell in cells() if cell.start in (options.starts or STARTS)]
    make_missing(lambda: next_runs(own, log, tuning), options.minutes, say)
    log, tuning = _logs(folder)  # also what another process with other starts has made meanwhile
    found = {}
    for cell in cells():
        at_best = cell.at(tuning_runs(cell, tuning)[0])
        if log.holds(at_best, limits(at_best, log, tuning)):
            found[cell] = log.records[at_best.key]
    return {"quick": False, "num_wanted": len(cells()), **summarize(found)}


def _logs(folder: Path) -> tuple[Log, Log]:
    """The finished runs, and the tuning runs with those of the map: their steps hang on no machine."""
    log, tuning = Log(folder / "runs.jsonl"), Log(folder / "tuning.jsonl")
    for stored in sorted(files.RESULTS.glob("*/when_pods_helps/tuning.jsonl")):
        tuning.records = Log(stored).records | tuning.records
    return log, tuning


def summarize(records: dict[Cell, Json]) -> Json:
    """For every regime its arms: each clock's values to the accuracy by seed, and how many times auto's they are."""
    names = {arm: name for name, arm in ARMS.items()}
    regimes: dict[tuple[str, float, int], dict[str, dict[int, Json]]] = {}
    for cell, record in records.items():
        arms = regimes.setdefault((cell.start, cell.kl, cell.digits), {})
        arms.setdefault(names[cell.num_rollouts, cell.num_kept, cell.more], {})[cell.seed] = record
    return {
        "num_runs": len(records),
        "commits": sorted({record["commit"] for record in records.values()}),
        "max_load": max((record["load"] for record in records.values()), default=0.0),
        "regimes": [
            {"start": start, "kl": kl, "digits": digits, "arms": {name: _arm(name, arms) for name in arms}}
            for (start, kl, digits), arms in regimes.items()
        ],
    }


def _arm(name: str, arms: dict[str, dict[int, Json]]) -> Json:
    own = arms[name]
    return {
        "rate": next(iter(own.values()))["rate"],
        "seeds": list(own),
        "to": {
            clock: [time if is_reached else None for time, is_reached in _times(own, list(own), clock)]
            for clock in CLOCKS
        },
        "auto_over": {clock: _over(own, arms.get("auto", {}), clock) for clock in CLOCKS},
        "over_grpo": _over(arms.get("GRPO 16", {}), own, "cpu_seconds"),
    }


def _over(base: dict[int, Json], arm: dict[int, Json], clock: str) -> Json | None:
    """How many times sooner, or cheaper, an arm is than the base, on the seeds of both; None: there are none."""
    seeds = [seed for seed in base if seed in arm]
    if base is arm or not seeds:
        return None
    return {**speedup(_times(base, seeds, clock), _times(arm, seeds, clock), GROWTH), "num_seeds": len(seeds)}


def _times(records: dict[int, Json], seeds: Sequence[int], clock: str) -> list[Time]:
    """Each seed's value of a clock at the accuracy, or at its end."""
    found = []
    for record in (records[seed] for seed in seeds):
        reached = record["reached"][f"{ACCURACY:g}"]
        at = reached or {name: values[-1] for name, values in record["points"].items()}
        price = float(clock.removeprefix("cost at ")) if clock.startswith("cost") else None
        value = at[clock] if price is None else at["trained"] + price * at["tokens"]
        found.append((max(float(value), 1e-9), reached is not None))
    return found


def tables(result: Json) -> str:
    """How many times sooner and cheaper auto is than each arm by every clock, and what each step to it gains."""
    return _shown(result, ("cpu_seconds", *CLOCKS[5:]))


def page(result: Json) -> str:
    """As `tables`, by two clocks, and how many runs there are."""
    made = (
        f"95 % intervals over paired seeds, and their number; a dash: not measured. {result['num_runs']} of "
        f"{result['num_wanted']} runs are made."
    )
    return f"{_shown(result, ('cpu_seconds', 'cost at 0.3'))}\n\n{made}"


def _shown(result: Json, clocks: Sequence[str]) -> str:
    arms, steps = [name for name in ARMS if name != "auto"], []
    rows: dict[str, list[list[str]]] = {clock: [] for clock in clocks}
    for regime in result["regimes"]:
        found = regime["arms"]
        title = f"{regime['start']}{', KL' if regime['kl'] else ''}{', 3 digits' if regime['digits'] == 3 else ''}"
        for clock in clocks:
            rows[clock].append([title, *(_text(found.get(arm, {}).get("auto_over", {}).get(clock)) for arm in arms)])
        steps.append([title, *(_text(found.get(arm, {}).get("over_grpo")) for arm in STEPS)])
    shown = [
        f"{_NAMES.get(clock, clock)}: an arm's over auto's\n\n{table(['start', *arms], rows[clock])}"
        for clock in clocks
    ]
    return "\n\n".join([*shown, f"CPU seconds: of GRPO 16 over those of\n\n{table(['start', *STEPS], steps)}"])


def _text(over: Json | None) -> str:
    return "–" if over is None else over_text(over, f"; {over['num_seeds']}")
