"""The demo with several paired seeds: seconds to fixed accuracies, and how many times sooner PODS has them.

    python -m benchmarks demo                  5 paired seeds of each arm, one run at a time, about 20 minutes
    python -m benchmarks demo --quick          one seed of a few seconds
    python -m benchmarks demo --out FOLDER     goes on in a folder, or measures what is finished there
    python -m benchmarks demo --tune           first each arm at four learning rates, with seeds of their own: 20 more

The comparison is the recipe `demo`, so the arms have its learning rates; its report is FOLDER/report.html.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.figures.markdown import table
from benchmarks.paired import Run, over_text, sooner, times_text, times_to
from benchmarks.timing import Say, titled

Json = dict[str, Any]
TARGETS = (0.5, 0.8, 0.9)
RATES = (7.5e-5, 1.5e-4, 3e-4, 6e-4)
TUNE_SEEDS = (100, 101)
SIZES = ((16, 16), (64, 64), (64, 16))
"""(n, m) of the arms."""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("demo", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed of a few seconds")
    parser.add_argument("--seeds", type=int, default=5, help="default: 5")
    parser.add_argument("--tune", action="store_true", help="also train each arm at other learning rates")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time; default: 1")
    parser.add_argument("--out", type=Path, help="folder of the comparison; default: runs/demo-DATE-TIME")
    command.measure(parser, arguments, run, keep_threads=True)


def markdown(result: Json) -> str:
    """A table of each run's seconds to two accuracies, and how many times sooner `pods` has them; then a note."""
    from podsrl.report.numbers import kept

    shown = list(result["to"])[-2:]
    found = [result["to"][target] for target in shown]
    percents = [f"{100 * float(target):g} %" for target in shown]
    head = [
        *("arm", "n → m", "seconds per step"),
        *(f"seconds to {each}, seed by seed" for each in percents),
        *(f"`pods` has {each} sooner" for each in percents),
        "accuracy at the end",
    ]
    rows = [
        [
            f"`{arm}`",
            f"{kept(facts['num_rollouts'])} → {kept(facts['num_kept'])}",
            f"{sum(result['stage_seconds'][arm].values()):.2f}",
            *(times_text(each["seconds"][arm]) for each in found),
            *("" if arm == "pods" else over_text(each["pods_over"][arm]) for each in found),
            f"{100 * result['mean_accuracy'][arm][-1]:.1f} %",
        ]
        for arm, facts in result["arms"].items()
    ]
    num_seeds = len(result["arms"]["pods"]["seeds"])
    clock = "" if result.get("clock", "seconds") == "seconds" else " Seconds to an accuracy are processor seconds."
    return (
        f"{table(head, rows)}\n\n{num_seeds} paired seeds of {result['seconds']:g} training seconds, "
        f"{result['jobs']} at a time; –: not within them.{clock} How many times sooner is the geometric mean over the "
        "seeds; an arm that does not get there counts with all its seconds, which makes it a bound (≥). In brackets: "
        "the 95 % interval.\n"
    )


def headline(result: Json) -> str:
    """How many times sooner `pods` has 90 %."""
    over = {arm: over_text(found) for arm, found in result["to"]["0.9"]["pods_over"].items()}
    return f"{over['grpo']} over GRPO 16 → 16, {over['grpo_ga']} over GRPO-GA 64 → 64"


def paired(curves: Mapping[str, Sequence[Run]], targets: Sequence[float] = TARGETS) -> Json:
    """Accuracy -> "seconds", each arm's by seed (None: not reached), and "pods_over" each other arm.

    Args:
        curves: arm -> its runs, by seed.
    """
    return {
        f"{target:g}": {
            "seconds": {
                arm: [seconds if is_reached else None for seconds, is_reached in own]
                for arm, own in times_to(curves, target).items()
            },
            "pods_over": sooner(curves, target, "pods"),
        }
        for target in targets
    }


def tune(folder: Path, kl: float, say: Say) -> None:
    """Train each arm at each rate to 90 %, or for as long as a run of the demo; finished runs are not made again."""
    from benchmarks.cells import Cell
    from benchmarks.runs import Limits, Log, run_once

    log = Log(folder / "tuning.jsonl")
    for rate, (n, m), seed in product(RATES, SIZES, TUNE_SEEDS):
        cell = Cell(start="0.9%", num_rollouts=n, num_kept=m, rate=rate, seed=seed, kl=kl)
        run_once(cell, Limits(cpu_seconds=60.0), log, titled(say, cell.title))


def rates(folder: Path) -> list[Json]:
    """CPU seconds to 90 % of the runs of `tune`; None: not within 60."""
    from benchmarks.runs import Log

    found = (record for record in Log(folder / "tuning.jsonl").records.values())
    names = ("arm", "rate", "seed", "commit")
    return [
        {**{n: r[n] for n in names}, "reached": r["reached"]["0.9"] and r["reached"]["0.9"]["cpu_seconds"]}
        for r in found
    ]


def run(options: argparse.Namespace, say: Say) -> Json:
    """Run the comparison, or what is left of it, draw its report, and return what `compare.json` holds."""
    from podsrl.cli.compare import QUICK
    from podsrl.cli.console import new_folder
    from podsrl.config.files import read_tree

    folder = options.out or new_folder("demo")
    if options.tune:
        tune(folder, float(read_tree("demo")["base"]["loss"]["kl_beta"]), say)
    changes = QUICK if options.quick else (f"num_seeds={options.seeds}", f"jobs={options.jobs}")
    return {**compared("demo", changes, folder), "quick": options.quick, "rates": rates(folder)}


def compared(source: str, changes: Sequence[str], folder: Path, targets: Sequence[float] = TARGETS) -> Json:
    """Measure `pods compare SOURCE CHANGES --out FOLDER`, or what is left of it, and draw its report.

    Returns:
        What `compare.json` holds; "curves": arm -> seconds and accuracy of each run's evaluations; and "to" (`paired`).
    """
    from podsrl.cli.compare import run_comparison
    from podsrl.config.files import read_tree
    from podsrl.config.load import apply_overrides, build
    from podsrl.config.schema import CompareConfig
    from podsrl.report.comparison import read_comparison
    from podsrl.report.html import write_report

    config = build(CompareConfig, apply_overrides(read_tree(source), changes), source)
    result = run_comparison(config, folder)
    write_report([folder], folder / "report.html")
    curves = {
        arm: [list(zip(*(values.tolist() for values in run), strict=True)) for run in runs]
        for arm, runs in read_comparison(folder).curves().items()
    }
    arms = {arm: {key: value for key, value in own.items() if key != "runs"} for arm, own in result["arms"].items()}
    return {**result, "curves": curves, "to": paired(curves, targets), "arms": arms}
