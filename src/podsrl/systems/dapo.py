"""DAPO's dynamic sampling (Yu et al. 2025, arXiv 2503.14476, section 3.2, equation 11): train on mixed groups alone.

A group is mixed if its valid rollouts differ: some right, some wrong. All others have only zero advantages.
`DynamicSampling` asks for new groups until P groups are mixed, and trains on the first P mixed ones in the order in
which they were asked. So a step trains on what filtering an endless list of questions would give, whatever finishes
first:

    groups asked = P kept + uniform + surplus (mixed, behind the P-th)

`Mixed` leaves out the other groups of whatever else was asked.

The published code (verl's DAPO recipe) generates in batches of equal size, filters by the standard deviation of a
metric, cuts the surplus, and ends the run with an error after `max_num_gen_batches` batches (10 in its scripts).

What is ours: the metric is correctness unless `metric` says otherwise, because shaped rewards nearly always differ; the
order is that of asking, where the published code may prefer groups that finish early; a later round asks for as many
groups as the share of mixed ones so far makes likely to be enough, at most 4 P; and a step that has too few mixed
groups after `max_rounds` rounds trains on those it has (`groups/mixed` in the metrics shows it).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from podsrl.control.base import View
from podsrl.lib.rounding import has_signal
from podsrl.types import Group

Metric = Literal["correct", "reward"]
MOST_PER_ROUND = 4
"""Largest number of groups of a round after the first, in units of P: 37 P in the default 10 rounds, where the
published script asks for 30 P."""


class Mixed:
    """Trains on the mixed groups alone, at most P. It learns nothing.

    Args:
        metric: what must differ within a group: right and wrong, or the rewards.
    """

    def __init__(self, *, metric: Metric = "correct") -> None:
        self._metric = metric

    def keep(self, view: View) -> list[str]:
        """Ids of the first P mixed groups, or of all where there are fewer."""
        mixed = [group.id for group in view.groups if group.is_trained and self._is_mixed(group)]
        return mixed[: view.num_prompts]

    def _is_mixed(self, group: Group) -> bool:
        if self._metric == "correct":
            return group.is_mixed
        return has_signal([rollout.reward for rollout in group.rollouts if rollout.is_valid])


class DynamicSampling(Mixed):
    """New groups until P are mixed; it trains on these alone. It learns nothing.

    Args:
        metric: what must differ within a group: right and wrong, or the rewards.
        max_rounds: rounds of a step, 1 .. 16.
    """

    def __init__(self, *, metric: Metric = "correct", max_rounds: Annotated[int, Field(ge=1, le=16)] = 10) -> None:
        super().__init__(metric=metric)
        self._max_rounds = max_rounds

    def enough(self, view: View) -> int:
        """P groups in the first round, then what is likely to give those that are missing."""
        asked = [group for group in view.groups if group.is_trained]
        num_mixed = sum(self._is_mixed(group) for group in asked)
        missing = view.num_prompts - num_mixed
        if missing <= 0 or view.round >= self._max_rounds:
            return 0
        likely = -(-missing * (len(asked) + 1) // (num_mixed + 1))  # rounded up
        return likely if view.round == 0 else min(likely, MOST_PER_ROUND * view.num_prompts)

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        return (num_prompts if self._max_rounds == 1 else MOST_PER_ROUND * num_prompts), num_rollouts
