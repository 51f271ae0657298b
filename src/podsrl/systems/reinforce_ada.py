"""Reinforce-Ada (arXiv 2510.04996, and its public code): rounds of rollouts until a question has right and wrong ones.

**Allocation** (`Seek`). Every question gets n rollouts. In each further round those whose group lacks right or wrong
rollouts get `more`, until it has `right` and `wrong` of them, or `most` rollouts in all:

    balanced (the paper keeps k = 4)    right = 2, wrong = 2        ⌊k/2⌋ and ⌈k/2⌉
    positive-focused                    right = 1, wrong = 0
    AERO's rescue (`systems/aero.py`)   right = 1, wrong = 0, more = 2: two at a time until the first right one

Of each group the paper keeps the first ⌊k/2⌋ right and ⌈k/2⌉ wrong ones, and fills up with the others where one kind is
too few. Of rewards 0 and 1 that is max-variance (`select.rule = "max_variance"`), which keeps the earliest of equals.

**Baseline** (`PoolMean`). The advantage is r minus the mean over all rollouts of the group, those that are not kept
too, without a standard deviation: `loss.advantage = "none"` and this part, which adds

    mean of the kept rewards - mean of all valid rewards of the group

A mean that is taken where a group stops is biased: its first right ones end it. With p = 5, 10 and 20 % right and
rounds of one rollout, at most 16, the mean share at the stop is 7, 14 and 27 %. Without the part the statistics are
those of the kept ones alone, as everywhere else in this package.

What is ours: a rollout is right if it counts as right for the accuracy, where the code asks for a reward above 0.7;
only valid rollouts count; and `more` and `most` need not be multiples of n.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Annotated

from pydantic import Field
from torch import Tensor

from podsrl.control.base import View
from podsrl.control.budget import MAX_ROUNDS
from podsrl.errors import UsageError
from podsrl.types import Ask, Group, Selection
from podsrl.update.advantage import kept_by_chunk

ROUNDS = 4
"""The published number: `most` is n · ROUNDS unless it is set."""
_MOST = "options.reinforce_ada.most (options.aero.most)"
"""For messages: two systems have `Seek`."""


class Seek:
    """More rollouts of the questions that lack right or wrong ones; it learns nothing.

    Args:
        right, wrong: a group has enough with so many valid rollouts that are right, and that are wrong.
        more: rollouts of a group per further round; None: n.
        most: rollouts of one group in all, at least n; None: 4 n. With n there is one round, and nothing is sought.
    """

    def __init__(
        self,
        *,
        right: Annotated[int, Field(ge=0)] = 2,
        wrong: Annotated[int, Field(ge=0)] = 2,
        more: Annotated[int, Field(ge=1)] | None = None,
        most: Annotated[int, Field(ge=2)] | None = None,
    ) -> None:
        self._right, self._wrong, self._more, self._most = right, wrong, more, most

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        """The new asks, and more rollouts of the groups that have not enough."""
        more, most = self._sizes(view.num_rollouts)
        return [
            *asks,
            *(
                Ask.of(group, min(more, room))
                for group in view.groups
                if (room := most - len(group.rollouts)) > 0 and self._lacks(group)
            ),
        ]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group.

        Raises:
            UsageError: `most` is less than n, or takes more than 16 rounds.
        """
        more, most = self._sizes(num_rollouts)
        if most < num_rollouts:
            raise UsageError(
                f"{_MOST} = {most} is less than rollouts.num_rollouts = {num_rollouts}, which every question gets: "
                "raise the one or lower the other"
            )
        if (rounds := 1 - (num_rollouts - most) // more) > MAX_ROUNDS:
            raise UsageError(
                f"{_MOST} = {most} takes {rounds} rounds: {num_rollouts} rollouts, then {more} at a time; wanted "
                f"at most {MAX_ROUNDS}: raise more, or lower most"
            )
        return num_prompts, most

    def _sizes(self, num_rollouts: int) -> tuple[int, int]:
        """Rollouts of a further round, and in all."""
        return self._more or num_rollouts, ROUNDS * num_rollouts if self._most is None else self._most

    def _lacks(self, group: Group) -> bool:
        outcomes = [rollout.is_correct for rollout in group.rollouts if rollout.is_valid]
        return group.is_trained and (outcomes.count(True) < self._right or outcomes.count(False) < self._wrong)


class PoolMean:
    """The mean of all valid rewards of a group, or of a chunk, in place of the mean of the kept ones."""

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> list[Tensor]:
        """The advantages of each group, moved by the difference of the two means."""
        return [_moved(*each) for each in zip(groups, selections, advantages, strict=True)]


def _moved(group: Group, selection: Selection, advantages: Tensor) -> Tensor:
    found, rollouts = advantages.clone(), group.rollouts
    chunk_of = {i: chunk for chunk in selection.chunks for i in chunk}
    for places in kept_by_chunk(selection):
        kept = [selection.kept[place] for place in places]
        pool = [i for i in chunk_of.get(kept[0], range(len(rollouts))) if rollouts[i].is_valid]
        first = rollouts[kept[0]].reward  # what is equal to it adds exactly nothing
        of_kept, of_pool = (fsum(rollouts[i].reward - first for i in each) / len(each) for each in (kept, pool))
        found[places] += of_kept - of_pool
    return found
