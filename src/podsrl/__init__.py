"""podsrl: train language models with verifiable rewards, and spend the update only on the rollouts that teach.

The names below are loaded when first used, so that `import podsrl` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podsrl.config.load import load_config
    from podsrl.run.step.trainer import Trainer
    from podsrl.types import Completion, Group, Rollout, Selection, Task

_HOMES = {
    "Completion": "podsrl.types",
    "Group": "podsrl.types",
    "Rollout": "podsrl.types",
    "Selection": "podsrl.types",
    "Task": "podsrl.types",
    "Trainer": "podsrl.run.step.trainer",
    "load_config": "podsrl.config.load",
}
__all__ = ["Completion", "Group", "Rollout", "Selection", "Task", "Trainer", "load_config"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'podsrl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
