"""Python time of systems, as a share of a step of the recipe `pods`.

    python -m benchmarks budgets            20 steps per system, some minutes
    python -m benchmarks budgets --quick    5 steps per system

A system's time is that of all rounds' questions to the budget with the checks of the answers, of what it keeps and
reshapes, and of what it learns, in processor time; the step is that of `pods train pods`, which has none.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from benchmarks import command
from benchmarks.timing import Clock, Say

if TYPE_CHECKING:
    from podsrl.run.step.trainer import Trainer

WARM_UP = 2
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "dapo": {},
    "dps": {},
    "dots": {"num_references": 64},
    "sgpo": {"most_profiled": 64},
    "dars": {},
    "gdro_rollouts": {"arms": list(range(24, 105, 8))},
    "xrpo": {},
    "gdro_prompts": {},
}
"""Name -> options: fewer probes than by default, and sizes about its 64, so that a step is one of the recipe's.

They work on any questions, and do nothing while a rollout is written."""
P = ParamSpec("P")
T = TypeVar("T")


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("budgets", __doc__)
    parser.add_argument("--quick", action="store_true", help="5 steps per system")
    command.measure(parser, arguments, lambda options, say: run(5 if options.quick else 20, say))


def run(num_steps: int, say: Say) -> dict[str, Any]:
    """Measure a run without systems, then each of `SYSTEMS`."""
    measured = {}
    for name in ("none", *SYSTEMS):
        say(name)
        measured[name] = measure({} if name == "none" else {name: SYSTEMS[name]}, num_steps)
    step = statistics.median(measured["none"][0])
    return {
        "steps": num_steps,
        "cpu_seconds_step": step,
        "parts": {
            name: {
                "cpu_seconds": statistics.mean(taken),
                "cpu_seconds_most": max(taken),
                "share": statistics.mean(taken) / step,
            }
            for name, (_, taken) in measured.items()
        },
    }


def measure(systems: Mapping[str, Mapping[str, Any]], num_steps: int) -> tuple[list[float], list[float]]:
    """Processor seconds of each step, and of the systems in it.

    Args:
        systems: name -> options.
    """
    from podsrl.config.load import load_config
    from podsrl.run.step.step import training_step
    from podsrl.run.step.trainer import Trainer

    options = {name: dict(own) for name, own in systems.items()}
    trainer = Trainer(load_config("pods", systems=[*systems], options=options) if systems else load_config("pods"))
    taken = watch(trainer)
    steps, of_systems = [], []
    for _ in range(WARM_UP + num_steps):
        clock = Clock()
        taken.clear()
        training_step(trainer)
        steps.append(clock.read().cpu_seconds)
        of_systems.append(sum(taken))
    trainer.close()
    return steps[WARM_UP:], of_systems


def watch(trainer: Trainer) -> list[float]:
    """The seconds of every call of the systems from now on."""
    from podsrl.run.step import trainer as module

    taken: list[float] = []

    def timed(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            begin = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                taken.append(time.process_time() - begin)

        return call

    budget, parts = trainer.desk.budget, trainer.parts.systems
    for owner, verb in ((budget, "ask"), (budget, "trained"), (parts, "learn"), (module, "shape_advantages")):
        original = getattr(owner, verb)
        setattr(owner, verb, timed(getattr(original, "__wrapped__", original)))
    return taken
