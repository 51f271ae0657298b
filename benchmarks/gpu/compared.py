"""Comparisons of a few minutes with a real model on a GPU, as `pods compare` makes them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks import command
from benchmarks.demo import compared, markdown
from benchmarks.figures.markdown import where
from benchmarks.timing import Say

Json = dict[str, Any]
QUICK = (
    *("num_seeds=1", "slice_seconds=0", "base.extends=pods", "base.model.path=builtin:arithmetic"),
    *("base.rollouts.num_prompts=2", "base.rollouts.num_rollouts=16", "base.rollouts.max_new_tokens=48"),
    *("base.task.num_eval=16", "base.eval.every_seconds=1", "base.stop.seconds=2", "base.stop.steps=0"),
)
"""A model that comes with podsrl, and seconds."""


def measure(
    name: str, doc: str | None, source: str, changes: Sequence[str], targets: Sequence[float], arguments: Sequence[str]
) -> None:
    """Measure a comparison, of whose file `changes` are changed for a GPU, and the time to each of two accuracies."""
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
        set_options = [f"{key}={value}" for key, value in values.items()]
        return compared(source, set_options, options.out or new_folder(name), targets)

    command.measure(parser, arguments, run, table, keep_threads=True)


def table(result: Json) -> str:
    """The demo's table of its arms, and where it was measured."""
    trial = "A trial of the command with a tiny model and seconds of training: no result.\n\n"
    return f"{trial * result['options']['quick']}{markdown(result)}\n{where(result)}"
