"""Python time of every part of a budget and of the loss, as a share of a step of the recipe `pods`.

    python -m benchmarks budgets            20 steps per part, some minutes
    python -m benchmarks budgets --quick    5 steps per part

A part's time is that of all rounds' questions to the budget with the checks of the answers, of what it keeps and
reshapes, and of what it learns, in processor time; the step is that of `pods train pods` with the default parts.
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
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "profile": {"most_profiled": 64},
    "difficulty": {"num_references": 64},
    "bandit": {"arms": list(range(24, 105, 8))},
}
"""Fewer probes than by default, and sizes about the recipe's 64, so that a step is one of the recipe's."""
BESIDE: Mapping[str, Mapping[str, str]] = {"examples": {"rollouts": "confidence"}}
"""Other parts without which a part does nothing."""
NAMES = ("mixed", "dynamics", "difficulty", "profile", "harder", "bandit", "confidence", "examples", "bins", "novelty")
"""Parts that work on any questions, without other parts that act while a rollout is written."""
P = ParamSpec("P")
T = TypeVar("T")


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("budgets", __doc__)
    parser.add_argument("--quick", action="store_true", help="5 steps per part")
    command.measure(parser, arguments, lambda options, say: run(5 if options.quick else 20, say))


def run(num_steps: int, say: Say) -> dict[str, Any]:
    """Measure the default parts, then each part beside them."""
    measured = {}
    for name, tree in {"default": Tree(), **parts()}.items():
        say(name)
        measured[name] = measure(tree, num_steps)
    step = statistics.median(measured["default"].pop("steps"))
    return {
        "steps": num_steps,
        "cpu_seconds_step": step,
        "parts": {
            name: {
                "slots": found["slots"],
                "cpu_seconds": statistics.mean(found["parts"]),
                "cpu_seconds_most": max(found["parts"]),
                "share": statistics.mean(found["parts"]) / step,
            }
            for name, found in measured.items()
        },
    }


Tree = dict[str, dict[str, Any]]


def parts() -> dict[str, Tree]:
    """The parts of `NAMES`, in all the slots that they fill."""
    from podsrl.config.schema import BudgetConfig
    from podsrl.lib.parts import SLOTS

    found: dict[str, Tree] = {}
    for option in (*(f"budget.{slot}" for slot in BudgetConfig.model_fields), "loss.shape"):
        section, _, slot = option.partition(".")
        for name in (name for name in NAMES if name in SLOTS[option].table):
            tree = found.setdefault(name, {"budget": dict(BESIDE.get(name, {}))})
            tree.setdefault(section, {})[slot] = (name,) if option == "loss.shape" else name
            if name in OPTIONS:
                tree["options"] = {name: dict(OPTIONS[name])}
    return found


def measure(tree: Tree, num_steps: int) -> dict[str, Any]:
    """Processor seconds of each step, and of the parts in it."""
    from podsrl.config.files import merge, read_tree
    from podsrl.config.load import build
    from podsrl.config.schema import RunConfig
    from podsrl.run.step.step import training_step
    from podsrl.run.step.trainer import Trainer

    trainer = Trainer(build(RunConfig, merge(read_tree("pods"), tree), "pods"))
    taken = watch(trainer)
    steps, of_parts = [], []
    for _ in range(WARM_UP + num_steps):
        clock = Clock()
        taken.clear()
        training_step(trainer)
        steps.append(clock.read().cpu_seconds)
        of_parts.append(sum(taken))
    trainer.close()
    slots = sorted({**tree.get("budget", {}), **tree.get("loss", {})})
    return {"slots": ", ".join(slots), "steps": steps[WARM_UP:], "parts": of_parts}


def watch(trainer: Trainer) -> list[float]:
    """The seconds of every call of the parts from now on."""
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

    budget, slots = trainer.desk.budget, trainer.parts.slots
    for owner, verb in ((budget, "ask"), (budget, "trained"), (slots, "learn"), (module, "shape_advantages")):
        original = getattr(owner, verb)
        setattr(owner, verb, timed(getattr(original, "__wrapped__", original)))
    return taken
