"""The reward "environment": what an environment gave for the turns of a rollout, added up (docs/turns.md)."""

from __future__ import annotations

from podsrl.errors import UsageError
from podsrl.types import Rollout, Task

EARNED = "environment"
"""Its name in `task.rewards`, where its weight is 1, in `task.correct` and in `task.format`."""


def earned(rollout: Rollout) -> float:
    """The sum over the turns; 0 where the environment gave nothing."""
    return sum((turn.reward for turn in rollout.turns), 0.0)


def environment(task: Task, completion: str) -> float:
    """No text says what was given: the scorer of a run reads it off the completion. UsageError: always."""
    raise UsageError("what an environment gives is known in a run alone; no text says it")
