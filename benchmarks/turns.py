"""Advantages of turns (GiGPO) against those of rollouts (GRPO), on sums that are asked column by column.

    python -m benchmarks turns                    five paired seeds of each arm, to 90 %: some ten minutes of one core
    python -m benchmarks turns --arms GRPO        these alone; further options as of `claims`
    python -m benchmarks turns --out benchmarks/results/amd-zen-4/turns    goes on with those that are stored

GRPO is the recipe `gigpo` without its shape: the same questions, 16 rollouts each, and the same rate.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.claims import CLOCKS, measure, verdict
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import Json, over_text

SHOWN = ("step", "tokens", "cpu_seconds")


def main(arguments: Sequence[str]) -> None:
    measure("turns", __doc__, "columns", arguments)


def table(result: Json) -> str:
    """A row per arm, then what they say."""
    target, baseline = f"{result['targets'][-1]:g}", result["baseline"]
    rows, lines = [], []
    for arm, own in result["arms"].items():
        steps = ", ".join("–" if step is None else f"{step:g}" for step in own["to"][target]["step"])
        over = own["over"].get(target)
        rows.append([arm, steps, *(over_text(over[clock]) if over else "1" for clock in SHOWN)])
        if over:
            said = ", ".join(f"{verdict(over[clock])} by {CLOCKS[clock]}" for clock in SHOWN)
            lines.append(f"{arm} against {baseline}: {said}.")
    starts = statistics.mean(own["start"] for own in result["arms"].values())
    note = (
        f"How many times cheaper than {baseline}, from {starts:.0%} until {float(target):.0%} of the held-out sums "
        f"are right, with the 95 % interval; a dash: not reached. {result['num_runs']} of {result['num_wanted']} runs "
        "are made."
    )
    head = ("arm", f"steps to {float(target):.0%}", *(CLOCKS[clock] for clock in SHOWN))
    return "\n\n".join([markdown_table(head, rows), note, *lines])
