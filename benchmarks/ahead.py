"""Steps that are generated ahead against steps that generate, then train: seconds and accuracy (the recipe `pods`).

    python -m benchmarks ahead            5 seeds, 150 steps each, about 10 minutes on two idle cores
    python -m benchmarks ahead --quick    one seed, 20 steps, about a minute

Three arms take turns with each seed: "sync" generates in its own process, "elsewhere" in a child process while it
waits, "ahead" in a child process while the step before trains. Each is evaluated at the same steps; evaluations are not
training time. The machine has to have a core for each of the two processes, or nothing overlaps.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import command
from benchmarks.timing import Say, ratios, spread, take_turns

ARMS = {
    "sync": (),
    "elsewhere": ("scale.generators=1",),
    "ahead": ("scale.generators=1", "steps.name=ahead"),
}
"""Arm -> its options."""
WARM_UP = 3
"""Steps whose seconds do not count: memory is taken, and the first step ahead has nothing under way."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One run."""

    step_seconds: float
    """Median."""
    overlapped_seconds: float
    """Median; 0 where nothing overlaps."""
    waited_seconds: float
    """Median of what a step waited for its rollouts."""
    lag: float
    """Mean, in weight updates."""
    accuracies: tuple[float, ...]
    """Held out, at the evaluated steps."""
    elapsed: tuple[float, ...]
    """Training seconds there."""
    load: float
    """Of the machine at the end: the average number of processes that wanted a core in the last minute."""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("ahead", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, 20 steps")
    command.measure(parser, arguments, lambda options, say: run(options.quick, say))


def run(is_quick: bool, say: Say) -> dict[str, Any]:
    """Train every arm with every seed."""
    num_seeds, num_steps, every = (1, 20, 10) if is_quick else (5, 150, 25)
    arms = {name: lambda seed, own=own: train(own, seed, num_steps, every) for name, own in ARMS.items()}
    found = take_turns(arms, num_seeds, say)
    steps = {arm: [each.step_seconds for each in runs] for arm, runs in found.items()}
    return {
        "seeds": num_seeds,
        "steps": num_steps,
        "cores": len(os.sched_getaffinity(0)),
        "load": spread([each.load for runs in found.values() for each in runs]),
        "evaluated_steps": list(range(0, num_steps + 1, every)),
        "throughput": {arm: ratios(steps["sync"], own) for arm, own in steps.items()},
        "arms": {arm: _summary(runs) for arm, runs in found.items()},
    }


def train(options: Sequence[str], seed: int, num_steps: int, every: int) -> Trained:
    """Train one run in this process, evaluated every `every` steps."""
    from podsrl.config.load import load_config
    from podsrl.run.evaluate import evaluate
    from podsrl.run.metrics import step_metrics
    from podsrl.run.step.trainer import Trainer
    from podsrl.run.steps import training_step

    sizes = (f"seed={seed}", f"stop.steps={num_steps}", "stop.seconds=0")
    trainer = Trainer(load_config("pods", [*sizes, *options]))
    try:
        lines, evaluations = [], [evaluate(trainer)]
        for step in range(1, num_steps + 1):
            lines.append(step_metrics(training_step(trainer)))
            if step % every == 0:
                evaluations.append(evaluate(trainer))
    finally:
        trainer.close()
    counted = lines[WARM_UP:]
    return Trained(
        step_seconds=statistics.median(line["seconds/total"] for line in counted),
        overlapped_seconds=statistics.median(line.get("seconds/overlapped", 0.0) for line in counted),
        waited_seconds=statistics.median(line["seconds/generate"] for line in counted),
        lag=statistics.mean(line["rollouts/lag"] for line in counted if line["rollouts/lag"] is not None),
        accuracies=tuple(each.result.accuracy for each in evaluations),
        elapsed=tuple(each.train_elapsed_seconds for each in evaluations),
        load=os.getloadavg()[0],
    )


def _summary(runs: Sequence[Trained]) -> dict[str, Any]:
    return {
        "seconds_step": spread([each.step_seconds for each in runs]),
        "seconds_waited": spread([each.waited_seconds for each in runs]),
        "seconds_overlapped": spread([each.overlapped_seconds for each in runs]),
        "lag": statistics.mean(each.lag for each in runs),
        "accuracy": [statistics.mean(values) for values in zip(*(each.accuracies for each in runs), strict=True)],
        "elapsed": [statistics.mean(values) for values in zip(*(each.elapsed for each in runs), strict=True)],
        "final_accuracies": [each.accuracies[-1] for each in runs],
    }
