"""Comparisons of a few minutes with a real model on a GPU, as `pods compare` makes them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks import command
from benchmarks.demo import compared
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.timing import Say

Json = dict[str, Any]
QUICK = (
    *("num_seeds=1", "slice_seconds=0", "base.extends=pods", "base.model.path=builtin:arithmetic"),
    *("base.rollouts.num_prompts=2", "base.rollouts.num_rollouts=16", "base.rollouts.max_new_tokens=48"),
    *("base.task.num_eval=16", "base.eval.every_seconds=1", "base.stop.seconds=2", "base.stop.steps=0"),
)
"""A model that comes with podsrl, and seconds."""


def measure(name: str, doc: str | None, source: str, changes: Sequence[str], arguments: Sequence[str]) -> None:
    """Measure a comparison, of whose file `changes` are changed for a GPU."""
    parser = command.new_gpu_parser(name, doc)
    parser.add_argument("--quick", action="store_true", help="a tiny model and seconds: a trial, no result")
    parser.add_argument("--model", help="model.path of all arms; default: the one of the file of arms")
    parser.add_argument("--seconds", type=int, help="training seconds of each run")

    def run(options: argparse.Namespace, say: Say) -> Json:
        from podsrl.cli.console import new_folder

        own = QUICK if options.quick else (*changes, f"base.model.device={options.device}")
        values = dict(each.split("=", 1) for each in own)
        asked = {"base.model.path": options.model, "base.stop.seconds": options.seconds}
        values |= {key: value for key, value in asked.items() if value is not None}
        return compared(source, [f"{key}={value}" for key, value in values.items()], options.out or new_folder(name))

    command.measure(parser, arguments, run, table, keep_threads=True)


def table(result: Json) -> str:
    """A line per arm, and where it was measured."""
    from podsrl.compare.interval import SpeedupInterval
    from podsrl.report.numbers import kept

    head = ("arm", "n → m", "steps", "seconds per step", "accuracy before", "at the end", "sooner than the baseline")
    rows = [
        [
            arm,
            f"{kept(facts['num_rollouts'])} → {kept(facts['num_kept'])}",
            ", ".join(map(str, result["steps"][arm])),
            f"{sum(result['stage_seconds'][arm].values()):.2f}",
            f"{result['start_accuracy'][arm] or 0:.1%}",
            f"{result['mean_accuracy'][arm][-1]:.1%}",
            "–" if result["not_learned"] else SpeedupInterval.from_json(result["speedup"][arm]).full_text,
        ]
        for arm, facts in result["arms"].items()
    ]
    trial = "A trial of the command with a tiny model and seconds of training: no result.\n\n"
    where = f"{result['seconds']:g} training seconds per run; {result['hardware']}; commit {result['commit']}"
    return f"{trial * result['options']['quick']}{markdown_table(head, rows)}\n\n{where}"
