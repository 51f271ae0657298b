"""VIGOR, variance-guided online rollout allocation (Jiang et al. 2026, arXiv 2607.22002).

Every question gets n rollouts. Each further round goes on with that `share` of the last round's questions whose rewards
vary most so far, and gives each of them `growth` times as many rollouts as the last round did. With the paper's 1/2 and
2 all rounds cost the same, so a step costs as much as plain GRPO's with n · `rounds` rollouts:

    P = 16, n = 2, 4 rounds     questions          16    8    4    2
                                rollouts of each    2    4    8   16    so a question has 2, 6, 14 or 30 in all

All of them are trained on. What is ours: of questions that vary equally, those that were asked first go on; the
variance is that of the valid rewards; a share of the questions is rounded, to one at least; and questions that are new
in a later round get n rollouts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Annotated

from pydantic import Field

from podsrl.control.base import View
from podsrl.lib.rounding import has_signal
from podsrl.types import Ask, Group


class Varied:
    """More rollouts of the questions whose rewards vary most; it learns nothing.

    Args:
        rounds: of a step; with 1 every question gets n rollouts, and no more.
        share: of the questions of a round, those that go on to the next.
        growth: rollouts of a question in a round, over those in the round before.
    """

    def __init__(
        self,
        *,
        rounds: Annotated[int, Field(ge=1, le=16)] = 4,
        share: Annotated[float, Field(gt=0, le=1)] = 0.5,
        growth: Annotated[int, Field(ge=1, le=16)] = 2,
    ) -> None:
        self._rounds, self._share, self._growth = rounds, share, growth

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        """The new asks, and those of the questions that go on."""
        if not 0 < view.round < self._rounds:
            return list(asks)
        size = self._size(view.round, view.num_rollouts)
        last = [group for group in view.groups if group.is_trained and len(group.rollouts) >= size]
        varied = sorted(last, key=_variance, reverse=True)  # of equal ones in their order
        count, more = max(1, round(self._share * len(last))), view.num_rollouts * self._growth**view.round
        return [*asks, *(Ask.of(group, more) for group in varied[:count])]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        return num_prompts, self._size(self._rounds, num_rollouts)

    def _size(self, rounds: int, num_rollouts: int) -> int:
        """Rollouts of a question that was asked in so many rounds."""
        return int(num_rollouts * sum(self._growth**number for number in range(rounds)))


def _variance(group: Group) -> float:
    """Of the valid rewards, about their mean; exactly 0 where all are equal or there are none."""
    rewards = [rollout.reward for rollout in group.rollouts if rollout.is_valid]
    own = [reward - rewards[0] for reward in rewards]
    return (len(own) * fsum(x * x for x in own) - fsum(own) ** 2) / len(own) ** 2 if has_signal(rewards) else 0.0
