"""The demo with several paired seeds; `--save` also writes its table into README.md and docs/benchmarks.md.

    python -m benchmarks demo                  5 paired seeds of each arm, one run at a time, about 20 minutes
    python -m benchmarks demo --quick          one seed of a few seconds
    python -m benchmarks demo --out FOLDER     goes on in a folder, or measures what is finished there

The comparison is the recipe `demo`, so the arms have its learning rates; its report is FOLDER/report.html.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.timing import Say

Json = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    from podsrl.cli.compare_result import shown

    parser = command.new_parser("demo", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed of a few seconds")
    parser.add_argument("--seeds", type=int, default=5, help="default: 5")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time; default: 1")
    parser.add_argument("--out", type=Path, help="folder of the comparison; default: runs/demo-DATE-TIME")
    command.measure(parser, arguments, run, shown, keep_threads=True)


def markdown(result: Json) -> str:
    """A table: each arm's seconds to fixed accuracies, and how much sooner `pods` is; then how it was measured."""
    from podsrl.compare.interval import SpeedupInterval
    from podsrl.report.numbers import kept

    times = [f"to {float(accuracy):.0%}".replace("%", " %") for accuracy in result["seconds_to"]]
    goal = f"`pods` to {result['fraction']:.0%} of its best accuracy".replace("%", " %")
    lines = [["arm", "n → m", "seconds per step", *times, goal]]
    lines.append(["---"] * len(lines[0]))
    for arm, facts in result["arms"].items():
        found = SpeedupInterval.from_json(result["speedup_over"][arm]["pods"])
        reached = (seconds[arm] for seconds in result["seconds_to"].values())
        lines.append(
            [
                f"`{arm}`",
                f"{facts['num_rollouts']} → {kept(facts['num_kept'])}",
                f"{sum(result['stage_seconds'][arm].values()):.2f}",
                *("–" if time is None else f"{time:.1f} s" for time in reached),
                "" if arm == "pods" else found.text,
            ]
        )
    shown = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return (
        f"{shown}\n\nTraining seconds until the mean accuracy of {len(facts['seeds'])} paired seeds is there, in "
        f"{result['seconds']:g} seconds; –: not reached. In brackets: the 95 % interval over seeds. "
        f"{result['jobs']} run(s) at a time.\n"
    )


def run(options: argparse.Namespace, say: Say) -> Json:
    """Run the comparison, or what is left of it, draw its report, and return what `compare.json` holds."""
    from podsrl.cli.compare import QUICK, run_comparison
    from podsrl.cli.console import new_folder
    from podsrl.config.files import read_tree
    from podsrl.config.load import apply_overrides, build
    from podsrl.config.schema import CompareConfig
    from podsrl.report.html import write_report

    folder = options.out or new_folder("demo")
    changes = [f"num_seeds={options.seeds}", f"jobs={options.jobs}", *(QUICK if options.quick else ())]
    config = build(CompareConfig, apply_overrides(read_tree("demo"), changes), "demo")
    result = run_comparison(config, folder)
    write_report([folder], folder / "report.html")
    arms = {arm: {key: value for key, value in own.items() if key != "runs"} for arm, own in result["arms"].items()}
    return {**result, "quick": options.quick, "arms": arms}
