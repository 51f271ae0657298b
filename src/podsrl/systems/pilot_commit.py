"""Pilot-Commit (arXiv 2605.26606, and its public code): a few rollouts tell which questions are worth all of them.

Each round asks new questions with `pilots` rollouts each. A question is worth more if the share of its right ones is
from `lower` to 1 - `upper`: then its group waits in a buffer, in later steps too. In each round so many of the buffer
as the step still lacks, drawn at random, get the rest of their n rollouts. The step trains on these groups alone,
pilots included. The others have told that they are too hard or too easy: they are left out, and so are groups that have
waited for `most_age` steps.

The pilots of a group that waited were drawn by older weights; `correct.proximal = "step_start"` is what the authors do,
who compute their log-probs anew.

What is ours: new questions are asked only while the buffer, after this round's draw, holds fewer groups than a step
trains on, where the code asks some in every round; the buffer keeps the newest `size` groups; a solved question comes
again in the next epoch; and all n rollouts are trained on unless a rule of `[select]` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Ask, Group

Share = Annotated[float, Field(ge=0, lt=1)]


class Pilot:
    """Pilots, a buffer, and the rest of the rollouts for some of it; it learns nothing.

    Args:
        pilots: rollouts of a new question, at least 2 and fewer than n.
        lower: least share of right ones that is worth more.
        upper: least share of wrong ones, likewise.
        wide: new questions per group that a step trains on, in a round that asks some.
        rounds: most rounds of a step; then it trains on fewer groups.
        most_age: steps after which a group of the buffer is left out.
        size: groups in the buffer.

    Raises:
        UsageError: no share lies from `lower` to 1 - `upper`.
    """

    def __init__(
        self,
        *,
        pilots: Annotated[int, Field(ge=2)],
        lower: Share = 0.125,
        upper: Share = 0.25,
        wide: Annotated[int, Field(ge=1, le=64)] = 3,
        rounds: Annotated[int, Field(ge=2, le=15)] = 10,
        most_age: Annotated[int, Field(ge=1, le=10_000)] = 4,
        size: Annotated[int, Field(ge=1, le=1_000_000)] = 256,
    ) -> None:
        if lower > 1 - upper:
            raise UsageError(
                f"options.pilot_commit.upper = {upper} with options.pilot_commit.lower = {lower}: no share is from "
                "lower to 1 - upper; set one of them lower"
            )
        self._pilots, self._lower, self._upper = pilots, lower, upper
        self._wide, self._rounds, self._most_age, self.most_groups = wide, rounds, most_age, size

    def enough(self, view: View) -> int:
        """New questions of this round."""
        lacking = self._lacking(view)
        left = len(self._buffer(view)) - lacking
        return self._wide * view.num_prompts if lacking and left < view.num_prompts else 0

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        """Pilots of the new questions, and the rest for some groups of the buffer."""
        buffer = self._buffer(view)
        count = min(self._lacking(view), len(buffer))
        drawn = view.rng("pilot").choice(len(buffer), count, replace=False) if count else ()
        rest = view.num_rollouts - self._pilots
        return [
            *(replace(ask, num_rollouts=self._pilots) for ask in asks),
            *(Ask.of(buffer[place], rest) for place in sorted(drawn)),
        ]

    def keep(self, view: View) -> list[str]:
        """Groups with more than pilots."""
        return [group.id for group in view.groups if self._is_committed(group)]

    def wait(self, view: View) -> list[str]:
        """The buffer, without what would be too old in the next step."""
        young = [group.id for group in self._buffer(view) if view.step - group.step < self._most_age]
        return young[-self.most_groups :]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group. UsageError: n leaves nothing to commit."""
        if self._pilots >= num_rollouts:
            raise UsageError(
                f"options.pilot_commit.pilots = {self._pilots}: wanted fewer than rollouts.num_rollouts = "
                f"{num_rollouts}"
            )
        return (self._wide + 1) * num_prompts, num_rollouts

    def _lacking(self, view: View) -> int:
        """Groups that the step still trains on too few; 0 after the last round."""
        return 0 if view.round >= self._rounds else max(0, view.num_prompts - len(self.keep(view)))

    def _buffer(self, view: View) -> list[Group]:
        """Groups with pilots that are worth more, the oldest first."""
        return [group for group in (*view.waiting, *view.groups) if self._is_worth_more(group)]

    def _is_committed(self, group: Group) -> bool:
        return len(group.rollouts) > self._pilots

    def _is_worth_more(self, group: Group) -> bool:
        outcomes = [rollout.is_correct for rollout in group.rollouts if rollout.is_valid]
        if self._is_committed(group) or not outcomes:
            return False
        return self._lower <= outcomes.count(True) / len(outcomes) <= 1 - self._upper
