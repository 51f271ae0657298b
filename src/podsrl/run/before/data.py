"""The task set that a config names. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podsrl.config.schema import TaskConfig
from podsrl.tasks import TaskSet, load_tasks

SPLIT_SEED = 0
"""Which rows are held out does not depend on a run's seed: all runs are judged on the same questions."""
OF_REWARDS = frozenset(
    {"rewards", "correct", "format", "reward_workers", "reward_timeout_seconds", "batch_timeout_seconds"}
    | {"environment", "tools", "max_turns"}
)
"""Options that say how answers are judged; all others say which questions are asked."""


def load_task_set(task: TaskConfig, options: Mapping[str, Mapping[str, Any]] | None = None) -> TaskSet:
    """Load what a config's task section names.

    Args:
        task: the section.
        options: the config's `options`, of which the set reads the table of its name.

    Raises:
        UsageError: as of `podsrl.tasks.load_tasks`.

    Example:
        >>> len(load_task_set(TaskConfig(name="arithmetic", digits=1, num_eval=4)).eval)
        4
    """
    own = (options or {}).get(task.name)
    return load_tasks(task.name, seed=SPLIT_SEED, own=own, **task.model_dump(exclude={"name", *OF_REWARDS}))
