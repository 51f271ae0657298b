"""Groups with given outcomes, for tests of parts of the budget."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from podsrl.control import View
from podsrl.tasks.stream import Stream
from podsrl.types import Group, Rollout, Task


def rollout(
    index: int,
    *,
    is_correct: bool,
    reward: float | None = None,
    is_valid: bool = True,
    text: str = "",
    logprobs: tuple[float, ...] = (-1.0,),
) -> Rollout:
    tokens = tuple(range(1, 1 + len(logprobs)))
    return Rollout(
        group_id="q",
        index=index,
        token_ids=tokens,
        logprobs=logprobs,
        version=0,
        status="done" if is_valid else "failed",
        finish_reason="stop",
        text=text,
        reward=float(is_correct) if reward is None else reward,
        parts={},
        is_correct=is_correct,
        invalid_reason=None if is_valid else "the reward raised",
    )


def group(name: str, rollouts: Iterable[Rollout], *, index: int = 0, is_trained: bool = True) -> Group:
    task = Task(id=str(index), prompt="?", answer="!")
    return Group(
        id=name, task=task, prompt_ids=(1,), rollouts=tuple(rollouts), index=index, step=6, is_trained=is_trained
    )


@cache
def outcomes(num_right: int, size: int) -> tuple[Rollout, ...]:
    """The first `num_right` are right."""
    return tuple(rollout(i, is_correct=i < num_right) for i in range(size))


def right_of(name: str, num_right: int, size: int, **changes: Any) -> Group:
    """A group with `outcomes`."""
    return group(name, outcomes(num_right, size), **changes)


def view(num_prompts: int = 3, num_rollouts: int = 8, num_train: int = 100, **changes: Any) -> View:
    sizes = {"num_prompts": num_prompts, "num_rollouts": num_rollouts, "num_train": num_train}
    return View(**({"step": 6, "seed": 0, "stream": Stream(num_train, seed=0)} | sizes | changes))
