"""All systems against each other (`pods compare systems`); `--save` also writes what `pods systems` shows.

    python -m benchmarks systems                  5 paired seeds of each system, about half an hour on two idle cores
    python -m benchmarks systems --quick          one seed of a few seconds
    python -m benchmarks systems --out FOLDER     goes on in a folder, or measures what is finished there

The comparison is the recipe `systems`; its report is FOLDER/report.html.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.figures.markdown import table
from benchmarks.files import text_of
from benchmarks.timing import Say
from podsrl.compare.costs import COSTS
from podsrl.compare.systems import MEASURED, needed

IN_PACKAGE = command.ROOT / "src" / "podsrl" / "compare" / MEASURED
QUICK = ("num_seeds=1", "base.stop.seconds=3", "base.eval.every_seconds=1")
LEFT_OUT = ("grid_seconds", "mean_accuracy", "speedup", "stage_seconds")
"""Of what a comparison writes, what is not saved: the curves, and what the costs say too."""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("systems", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed of a few seconds")
    parser.add_argument("--out", type=Path, help="folder of the comparison; default: runs/systems-DATE-TIME")
    command.measure(parser, arguments, run, publish=publish, keep_threads=True)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Run the comparison, or what is left of it, and draw its report."""
    from podsrl.cli.compare import run_comparison
    from podsrl.cli.console import new_folder
    from podsrl.config.files import read_tree
    from podsrl.config.load import apply_overrides, build
    from podsrl.config.schema import CompareConfig
    from podsrl.report.html import write_report

    folder = options.out or new_folder("systems")
    config = build(CompareConfig, apply_overrides(read_tree("systems"), QUICK if options.quick else ()), "systems")
    result = run_comparison(config, folder)
    write_report([folder], folder / "report.html")
    return summary(result)


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is saved of `compare.json`."""
    kept = {key: value for key, value in result.items() if key not in LEFT_OUT}
    arms = {arm: {key: value for key, value in own.items() if key != "runs"} for arm, own in result["arms"].items()}
    last = {arm: means[-1] for arm, means in result["mean_accuracy"].items()}
    num_seeds = len(result["arms"][result["baseline"]]["seeds"])
    return {**kept, "arms": arms, "num_seeds": num_seeds, "last_accuracy": last}


def publish(result: dict[str, Any]) -> None:
    """Write the result where `pods systems` reads it."""
    IN_PACKAGE.write_text(text_of(result), encoding="utf-8")


def markdown(result: Mapping[str, Any]) -> str:
    """A row per system whose cost differs clearly; the others in a line each kind, with their accuracies."""
    rows: list[list[str]] = []
    unclear: list[str] = []
    missed: list[str] = []
    for arm, last in result["last_accuracy"].items():
        found = {cost: each for cost in COSTS if cost in result["costs"] and (each := needed(result, arm, cost))}
        if clear := [f"{each.text} the {cost}" for cost, each in found.items() if each.is_clear]:
            rows.append([f"`{arm}`", f"{last:.1%}", "; ".join(clear)])
        elif arm != result["baseline"]:
            (unclear if any(each.point for each in found.values()) else missed).append(f"`{arm}` ({last:.1%})")
    baseline = result["baseline"]
    lines = [f"{setting_of(result)}. `{baseline}` ends at {result['last_accuracy'][baseline]:.1%}."]
    lines += [table(["system", "accuracy at the end", f"needed, relative to `{baseline}`"], rows, num_left=3)] * bool(
        rows
    )
    for said, arms in (("No clear difference in cost", unclear), ("The target was not reached by", missed)):
        lines += [f"{said}: {', '.join(arms)}."] * bool(arms)
    return "\n\n".join(lines)


def setting_of(result: Mapping[str, Any]) -> str:
    """Seeds, seconds and target of the comparison."""
    return (
        f"{result['num_seeds']} paired seeds of {result['seconds']:g} training seconds, {result['jobs']} at a time; "
        f"costs to {result['fraction']:.0%} of the best accuracy of `{result['baseline']}`"
    )
