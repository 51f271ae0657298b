"""When a group has enough rollouts, so that its others are ended or never begun: the systems `certain`, `until_mixed`.

A group's rollouts are shown in the order of their indices; it ends with the first index up to which they are enough.
No group is closed with fewer than `first`, and what learns how hard a question is sees these alone (`Group.outcomes`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Group

First = Annotated[int, Field(ge=2)]


def is_certain(rewards: Sequence[float], num_kept: int, lowest: float, highest: float) -> bool:
    """Whether no further reward in lowest .. highest can change which `num_kept` max-variance chooses.

    Example:
        >>> is_certain([1.0, 0.0, 1.0], 4, 0.0, 1.0), is_certain([1.0, 0.0, 1.0, 0.0], 4, 0.0, 1.0)
        (False, True)
    """
    half = num_kept // 2
    return rewards.count(highest) >= half and rewards.count(lowest) >= num_kept - half


class Certain:
    """A group ends where the choice of max-variance or max-signal is certain: no reward of its others can change it.

    That is so as soon as ⌊m/2⌋ of its rewards are the highest that there can be and ⌈m/2⌉ the lowest, and with
    max-variance not before: docs/selection-proofs.md proves it. So selections, samples and updates are those without
    it, and only the rollouts that the rule would drop anyway are fewer.

    Where a reward lies outside of its bounds, the bounds are wrong and nothing was certain: a warning names the
    rollout, and from the next step on no group is closed.

    Args:
        lowest, highest: of a rollout's reward, the weighted sum; None: what the functions of `task.rewards` declare,
            which those of podsrl do. Both, or none of them.
        first: no group is closed with fewer rollouts.

    Raises:
        UsageError: one of the two alone, or `lowest` not below `highest`.
    """

    needs = frozenset({"kept_alone"})

    def __init__(self, *, lowest: float | None = None, highest: float | None = None, first: First = 16) -> None:
        ends = math.nan if lowest is None else lowest, math.nan if highest is None else highest
        if (lowest is None) != (highest is None) or ends[0] >= ends[1]:
            raise UsageError(
                f"[options.certain]: lowest = {lowest}, highest = {highest}; wanted lowest < highest, or none"
            )
        self._bounds = None if lowest is None else ends
        self._num_kept, self.first = 0, first
        self._is_off = False

    def check_rewards(self, num_kept: int, bounds: tuple[float, float] | None) -> None:
        """Take how many are kept of plenty, and the declared bounds. UsageError: they are needed and not known."""
        self._num_kept, self._bounds = num_kept, self._bounds or bounds
        if self._bounds is None:
            raise UsageError(
                "systems = 'certain' wants to know which rewards there can be, and a function of your own in "
                "task.rewards declares no bounds: set options.certain.lowest and options.certain.highest to those of "
                "the weighted sum"
            )

    def close(self, view: View, group: Group) -> bool:
        """Whether the choice is certain."""
        if self._is_off or self._bounds is None:
            return False
        rewards = [rollout.reward for rollout in group.rollouts]  # NaN where invalid
        return is_certain(rewards, self._num_kept, *self._bounds)

    def learn(self, groups: Sequence[Group]) -> None:
        """Look for a reward that cannot be."""
        assert self._bounds is not None, "checked"
        lowest, highest = self._bounds
        for group in () if self._is_off else groups:
            for rollout in group.rollouts:
                if rollout.is_valid and not lowest <= rollout.reward <= highest:
                    warnings.warn(
                        f"rollout {rollout.index} of group {group.id!r} has the reward {rollout.reward:g}, "
                        f"and systems = 'certain' took {lowest:g} .. {highest:g} for certain: from now on no group "
                        "is closed; correct options.certain.lowest and options.certain.highest",
                        stacklevel=2,
                    )
                    self._is_off = True
                    return

    def state(self) -> dict[str, Any]:
        """Whether a reward has broken the bounds."""
        return {"is_off": self._is_off}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._is_off = bool(state["is_off"])


class UntilMixed:
    """A group ends where it has right and wrong rollouts: as many as are wanted of each, and `first` in all.

    Questions of middling difficulty then cost few rollouts, and hard ones all of them. It loses what the others would
    have brought, and it is biased: a group that ends with its first right rollout has a larger share of them than its
    question deserves (where 1 % are right, the mean share of groups of at most 64 is 2 %). `accuracy/all` pools all
    rollouts: it is without that bias, and weighs hard questions more. What learns how hard a question is sees the first
    ones alone, without bias.

    Args:
        right, wrong: least numbers of valid rollouts that are right, and that are wrong.
        first: no group is closed with fewer rollouts.
    """

    def __init__(
        self,
        *,
        right: Annotated[int, Field(ge=0)] = 1,
        wrong: Annotated[int, Field(ge=0)] = 1,
        first: First = 16,
    ) -> None:
        self._right, self._wrong, self.first = right, wrong, first

    def close(self, view: View, group: Group) -> bool:
        """Whether it has them."""
        outcomes = [rollout.is_correct for rollout in group.rollouts if rollout.is_valid]
        return outcomes.count(True) >= self._right and outcomes.count(False) >= self._wrong
