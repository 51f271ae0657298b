"""Predicted against measured seconds of a step at choices that the planner's fit has not seen, on the recipe `pods`.

    python -m benchmarks planner               wall-clock seconds, for a quiet machine; about five minutes
    python -m benchmarks planner --cpu-time    the process's own processor seconds, for a shared machine
    python -m benchmarks planner --steps 2 --probe-seconds 8      quicker, less precise

The config's own choice, which the fit has seen, takes turns with the others: where the machine is slower than it was
during the probes, its ratio says by how much, and `ratio_to_control` is the others' ratio divided by it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import command
from benchmarks.timing import Say

if TYPE_CHECKING:
    from podsrl.plan.search import Candidate
    from podsrl.run.step.trainer import Trainer

SIZES = (8, 32, 256)
"""The fit sees 16, 64 and 128."""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("planner", __doc__)
    parser.add_argument("--cpu-time", action="store_true", help="processor seconds of this process, not wall-clock")
    parser.add_argument("--probe-seconds", type=float, default=40.0, help="budget of the planner's own measurement")
    parser.add_argument("--steps", type=int, default=9, help="measured steps of each choice")
    command.measure(parser, arguments, run, keep_threads=True)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Measure, predict, check."""
    from podsrl.config.load import load_config
    from podsrl.plan.probe import probe_sizes, run_probes, still_trainer
    from podsrl.plan.search import make_plan

    def progress(done: float, total: float | None, text: str) -> None:
        say(text)

    wall_clock = time.perf_counter
    if options.cpu_time:
        time.perf_counter = time.process_time
    try:
        config = load_config("pods")
        assert not set(SIZES) & set(probe_sizes(config)), "these choices must be new to the fit"
        with still_trainer(config) as trainer:
            measured = run_probes(trainer, config, budget_seconds=options.probe_seconds, progress=progress)
            plan = make_plan(measured)
            unseen = [c for c in plan.candidates if c.num_rollouts in SIZES and c.num_kept in (4, 8, 32, 64)]
            choices = [plan.own, *unseen]
            measured_seconds = step_seconds(trainer, choices, options.steps, say)
    finally:
        time.perf_counter = wall_clock
    ratios = [choice.seconds.total / seconds for choice, seconds in zip(choices, measured_seconds, strict=True)]
    rows = [
        {
            "choice": choice.key,
            "predicted": choice.seconds.total,
            "measured": seconds,
            "ratio": ratio,
            "ratio_to_control": ratio / ratios[0],
        }
        for choice, seconds, ratio in zip(choices, measured_seconds, ratios, strict=True)
    ]
    return {
        "clock": "process" if options.cpu_time else "wall",
        "load": os.getloadavg()[0],
        "noise_ratio": plan.noise_ratio,
        "pass_rate": plan.pass_rate,
        "best": plan.best.key,
        "rows": rows,
    }


def step_seconds(trainer: Trainer, choices: Sequence[Candidate], num_steps: int, say: Say) -> list[float]:
    """Median seconds of real steps of each choice, which take turns; a first step of each does not count."""
    from podsrl.plan.probe import resize
    from podsrl.run.step.step import training_step

    seconds: list[list[float]] = [[] for _ in choices]
    for _ in range(num_steps + 1):
        for choice, own in zip(choices, seconds, strict=True):
            say(f"{choice.num_rollouts} → {choice.num_kept} for real")
            resize(trainer, *choice.key)
            own.append(training_step(trainer).total_seconds)
    return [median(own[1:]) for own in seconds]
