"""AERO, adaptive rollouts (arXiv 2602.14338): hopeless questions get a few more, hard ones lose surplus wrong answers.

**Rescue.** Every question gets 8 rollouts. Those that are answered wrong throughout get two more at a time, until one
is right or there are 16. That is Reinforce-Ada's part `Seek` (`systems/reinforce_ada.py`) with `right = 1`,
`wrong = 0`, `more = 2` and `most = 16`.

**Selection** (`drop_surplus`). Of r right and w wrong rollouts

    0 < r < w      all right ones and the first r wrong ones: at equal numbers the gradient is largest (lemma 4.2)
    r >= w > 0     all
    r or w = 0     the first four

**A group without contrast** (`Posterior`) is not without a signal: its rollouts all have the advantage

    weight · (2p - 1)        p = (r + 1) / (n + 2), the mean of its success after n rollouts and a uniform prior

so those of 8 right ones have 0.8, and those of 16 wrong ones -0.89.

The paper was not read, only a third party's implementation, which contradicts itself: its text has this advantage, its
code gives p and 1 - p to the group as rewards. What is ours beside that choice: `weight`; right and wrong by the upper
and lower half of the group's rewards, in the rule; only valid rollouts count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Generator, Tensor

from podsrl.errors import UsageError
from podsrl.lib.rounding import has_signal
from podsrl.select.variance import max_variance
from podsrl.types import Group, Rollout, Selection

UNIFORM = 4
"""Kept rollouts of a group without contrast."""


def drop_surplus(
    groups: Sequence[Group],
    num_kept: int,
    *,
    generator: Generator | None = None,
    uniform: Annotated[int, Field(ge=2)] = UNIFORM,
) -> list[list[int]]:
    """Keep as many wrong rollouts as right ones where fewer are right, else all; at most `num_kept`, by max-variance.

    Args:
        groups: of any sizes, each of at least two rollouts with finite rewards; right are those whose reward is nearer
            to the group's highest than to its lowest.
        num_kept: at most so many of each, at least 2.
        generator: not used, the rule draws nothing.
        uniform: kept of a group whose rewards are all equal.

    Returns:
        For each group its kept places, ascending.

    Raises:
        UsageError: `num_kept` under 2; or as of `max_variance`.

    Example:
        >>> from podsrl.types import group_of_rewards
        >>> drop_surplus([group_of_rewards("hard", [0, 0, 1, 0, 0]), group_of_rewards("easy", [1, 0, 1])], 8)
        [[0, 2], [0, 1, 2]]
    """
    if num_kept < 2:
        raise UsageError(f"num_kept = {num_kept}; wanted at least 2: a single reward has no advantage")
    return [_kept([rollout.reward for rollout in group.rollouts], num_kept, uniform) for group in groups]


def _kept(rewards: Sequence[float], num_kept: int, uniform: int) -> list[int]:
    middle = min(rewards) / 2 + max(rewards) / 2
    num_right = sum(reward > middle for reward in rewards) if has_signal(rewards) else 0
    size = min(2 * num_right, len(rewards)) if num_right else min(uniform, len(rewards))
    kept: list[int] = max_variance(list(rewards), min(size, num_kept))
    return kept


class Posterior:
    """A constant advantage for groups whose valid rollouts are all right or all wrong, with equal rewards.

    Args:
        weight: of that advantage; 0: none, as everywhere else.
    """

    def __init__(self, *, weight: Annotated[float, Field(ge=0, le=1e6)] = 1.0) -> None:
        self._weight = weight

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> list[Tensor]:
        """The advantages of each group; those of groups with contrast as they are."""
        weight = self._weight
        return [
            torch.full_like(own, weight * constant) if (constant := _constant(group.rollouts)) and weight else own
            for group, own in zip(groups, advantages, strict=True)
        ]


def _constant(rollouts: Sequence[Rollout]) -> float:
    """2p - 1; 0 where there is contrast, or no valid rollout."""
    valid = [rollout for rollout in rollouts if rollout.is_valid]
    outcomes = {rollout.is_correct for rollout in valid}
    if len(outcomes) != 1 or has_signal([rollout.reward for rollout in valid]):
        return 0.0
    return (1 if outcomes.pop() else -1) * len(valid) / (len(valid) + 2)
