"""The task set that a config names. Nothing here imports torch."""

from __future__ import annotations

from podsrl.config.schema import TaskConfig
from podsrl.tasks import TaskSet, load_tasks

SPLIT_SEED = 0
"""Which rows are held out does not depend on a run's seed: all runs are judged on the same questions."""
_OF_REWARDS = frozenset(
    {"rewards", "correct", "format", "reward_workers", "reward_timeout_seconds", "batch_timeout_seconds"}
    | {"environment", "tools", "max_turns"}
)
"""Options that say how answers are judged; all others say which questions are asked."""


def load_task_set(task: TaskConfig) -> TaskSet:
    """Load what a config's task section names.

    Raises:
        UsageError: as of `podsrl.tasks.load_tasks`.

    Example:
        >>> len(load_task_set(TaskConfig(name="arithmetic", digits=1, num_eval=4)).eval)
        4
    """
    return load_tasks(task.name, seed=SPLIT_SEED, **task.model_dump(exclude={"name", *_OF_REWARDS}))
