"""As many rollouts as are worth their cost: n of a step, from what the last groups were like.

A group of n rollouts of a question with success p is mixed with probability 1 - p^n - (1 - p)^n, and no other teaches.
Of each of the last `window` groups the part knows r right of v valid ones. With a prior of one answer at the share of
all of them together, p has the distribution Beta(a, b), a = q + r, b = 1 - q + v - r, q = (Σ r + 1/2) / (Σ v + 1), and

    E[p^n] = Π (a + i) / (a + b + i), i = 0 .. n - 1

The step asks n of `sizes` rollouts of each question, the n that maximises

    mixed(n)^POWER / (group + rollout · n + row · rows · mixed(n))

where mixed(n) is the mean over the groups, and `[costs]` has the three costs. They are constants: no run looks at its
clock, so the same seeds ask the same.

Ours; docs/budgets.md has the costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from podsrl.config.schema import CostsConfig
from podsrl.control.base import View
from podsrl.types import Ask, Group

POWER = 0.5
"""Of what a step teaches: AdamW's steps have one length, and their progress goes with signal / noise, a root.

With 3/4 six runs on sums took as many steps (0.96 times, 0.86 to 1.07) and 1.41 times the tokens (1.25 to 1.59).
"""
Seen = tuple[int, int]
"""Right and valid rollouts of a group."""


def mixed_shares(seen: Sequence[Seen], largest: int) -> list[float]:
    """The expected share of mixed groups at n = 1 .. `largest`, from at least one group.

    Example:
        >>> mixed_shares([(1, 1), (0, 1)], 2)  # q = 1/2: Beta(3/2, 1/2) and Beta(1/2, 3/2)
        [0.0, 0.25]
    """
    right, valid = (np.array(column, dtype=np.float64) for column in zip(*seen, strict=True))
    prior = (right.sum() + 0.5) / (valid.sum() + 1)
    a, b = prior + right, 1 - prior + valid - right
    drawn = np.arange(largest)
    rest = (a + b)[:, None] + drawn
    all_right, all_wrong = (((first[:, None] + drawn) / rest).cumprod(axis=1) for first in (a, b))
    # Exactly rounded sums, and factors in order: another processor chooses the same.
    return [max(0.0, fsum(column) / len(seen)) for column in (1 - all_right - all_wrong).T.tolist()]


class Worth:
    """The group size of most progress per cost; n in a step before which nothing was seen.

    Args:
        sizes: group sizes to choose from, each at least 2.
        rows: of a mixed group, rows that the update trains: about 6 with `select.rule = "max_signal"`, else m.
        window: the last groups that count.
    """

    def __init__(
        self,
        *,
        sizes: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=1)] = (8, 16, 32, 64, 128),
        rows: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 6.0,
        window: Annotated[int, Field(ge=1)] = 32,
    ) -> None:
        self.sizes, self.rows = sorted(sizes), rows
        self._seen: deque[Seen] = deque(maxlen=window)

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """New groups get the step's size; rollouts that join a group stay."""
        if not self._seen:
            return asks
        size = self.best(view.costs)
        return [ask if ask.joins else replace(ask, num_rollouts=size) for ask in asks]

    def best(self, costs: CostsConfig) -> int:
        """The size of the largest rate; of equal ones the smallest."""
        shares = mixed_shares(tuple(self._seen), self.sizes[-1])

        def rate(size: int) -> float:
            mixed = shares[size - 1]
            cost = costs.group_ms + costs.rollout_ms * size + costs.row_ms * self.rows * mixed
            return float(mixed**POWER) / cost

        return max(self.sizes, key=rate)

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        return num_prompts, max(num_rollouts, self.sizes[-1])

    def learn(self, groups: Sequence[Group]) -> None:
        """Remember how many were right."""
        self._seen.extend((sum(own), len(own)) for group in groups if (own := group.outcomes))

    def state(self) -> dict[str, Any]:
        """[groups, 2] right and valid rollouts."""
        return {"seen": np.array(self._seen, dtype=np.int64).reshape(-1, 2)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._seen.clear()
        self._seen.extend((right, valid) for right, valid in state["seen"].tolist())
