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
from dataclasses import asdict
from typing import Any

from benchmarks import command
from benchmarks.timing import Say

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
    from podsrl.plan.probe import probe_sizes, run_probes, still_trainer, verify
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
            control, *checks = verify(trainer, [plan.own, *unseen], num_steps=options.steps, progress=progress)
    finally:
        time.perf_counter = wall_clock
    rows = [
        {"choice": candidate.key, **asdict(done), "ratio": done.ratio, "ratio_to_control": done.ratio / control.ratio}
        for candidate, done in zip([plan.own, *unseen], [control, *checks], strict=True)
    ]
    return {
        "clock": "process" if options.cpu_time else "wall",
        "load": os.getloadavg()[0],
        "noise_ratio": plan.noise_ratio,
        "pass_rate": plan.pass_rate,
        "best": plan.best.key,
        "rows": rows,
    }
