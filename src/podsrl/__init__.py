"""Train language models with verifiable rewards, and spend the update only on the rollouts that teach.

    train           train a recipe, a file or a config; gives a Run
    evaluate        measure the held-out accuracy of a run, a recipe or a model
    compare         train several ways on the same seeds, and measure speed-ups
    plan            suggest how many rollouts to generate and to keep on this machine
    check_reward    try rewards on stored completions before you train on them
    Run             a run in its folder: curves(), groups, evaluate(), report(), resume()
    load_config     a recipe, a file or a dict as a checked config
    recipe_names    the configs that come with the package
    max_variance    which rollouts PODS keeps: rewards and a number -> indices
    Trainer         the verbs of a training step, for a loop of your own
    Task, Rollout, Group, Selection
                    the records that flow through a step
    UsageError      bad input; its one line names the option and the cure
    Interrupted     a run that was stopped and can go on

For example: run = podsrl.train("pods", select={"num_kept": 8}, stop={"steps": 20}). docs/python.md shows more.

The names are loaded when first used, so that `import podsrl` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podsrl.api import Interrupted, Run, check_reward, compare, evaluate, plan, train
    from podsrl.config.files import recipe_names
    from podsrl.config.load import load_config
    from podsrl.errors import UsageError
    from podsrl.run.step.trainer import Trainer
    from podsrl.select import max_variance
    from podsrl.types import Group, Rollout, Selection, Task

_HOMES = {
    "Group": "podsrl.types",
    "Interrupted": "podsrl.api",
    "Rollout": "podsrl.types",
    "Run": "podsrl.api",
    "Selection": "podsrl.types",
    "Task": "podsrl.types",
    "Trainer": "podsrl.run.step.trainer",
    "UsageError": "podsrl.errors",
    "check_reward": "podsrl.api",
    "compare": "podsrl.api",
    "evaluate": "podsrl.api",
    "load_config": "podsrl.config.load",
    "max_variance": "podsrl.select",
    "plan": "podsrl.api",
    "recipe_names": "podsrl.config.files",
    "train": "podsrl.api",
}
__all__ = [
    "Group",
    "Interrupted",
    "Rollout",
    "Run",
    "Selection",
    "Task",
    "Trainer",
    "UsageError",
    "check_reward",
    "compare",
    "evaluate",
    "load_config",
    "max_variance",
    "plan",
    "recipe_names",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("podsrl")
    if name not in _HOMES:
        raise AttributeError(f"module 'podsrl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
