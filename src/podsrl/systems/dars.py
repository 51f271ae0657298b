"""DARS, difficulty-adaptive rollout sampling (Yang et al. 2025, arXiv 2508.13755, and its public code).

Every question gets n rollouts. Those that are answered right less than half of the time then get more, which join the
group, until the group's sum of |advantages| is that of a question at one half. With the share a of right rollouts, the
advantage r - mean gives one rollout the mean signal

    S(a) = 2 a (1 - a), at most 1/2        with `std`: 2 sqrt(a (1 - a)), at most 1

A question below one half gets ceil((goal - n S) / S) more rollouts, at most `most` in all:

    mode "ET" (equal treatment)       goal = n S(1/2)
    mode "HW" (hardness weighted)     goal = 2 (1 - a) n S(1/2)

Where no rollout is right, a = 0.5 / n. Questions at one half or above get none.

What is ours: only valid rollouts count, so a is the share among these, and a hard group gets as many more as it lacks
valid ones; a question with no valid rollout gets no more; fractions are exact,
where the published code computes with floats, whose rounding may add one rollout to a quotient that is whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Ask, Group

Mode = Literal["ET", "HW"]
PUBLISHED_MOST = {"ET": 4, "HW": 8}
"""`most` in units of n: the published bounds are 32 and 64 for n = 8."""


def group_size(num_right: int, num_valid: int, num_rollouts: int, most: int, mode: Mode, *, is_std: bool) -> int:
    """Rollouts in all of a group of which `num_right` of `num_valid` ≥ 1 are right; `num_rollouts` .. `most`.

    Example:
        >>> [group_size(k, 8, 8, 32, "ET", is_std=False) - 8 for k in range(9)]
        [24, 11, 3, 1, 0, 0, 0, 0, 0]
    """
    right = Fraction(num_right, num_valid) or Fraction(1, 2 * num_rollouts)
    if right >= Fraction(1, 2):
        return num_rollouts
    goal = num_rollouts if mode == "ET" else 2 * (1 - right) * num_rollouts
    signal = 4 * right * (1 - right)  # of one rollout, in units of that at one half; with `std` its square
    size = _root_up(goal**2 / signal) if is_std else math.ceil(goal / signal)
    return min(size, most)


def _root_up(square: Fraction) -> int:
    """The square root of a number above 0, rounded up."""
    return math.isqrt(math.ceil(square) - 1) + 1


class Harder:
    """More rollouts of the questions that are answered right less than half of the time.

    It learns nothing.

    Args:
        mode: "ET" or "HW".
        most: rollouts of one group in all, at least n; None: 4 n with "ET", 8 n with "HW".
        std: the advantages are divided by their standard deviation, as `loss.advantage = "std"` does.
    """

    def __init__(
        self, *, mode: Mode = "ET", most: Annotated[int, Field(ge=2)] | None = None, std: bool = False
    ) -> None:
        self._mode, self._most, self._is_std = mode, most, std

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        """The new asks, and more rollouts of the groups that have those of their first round alone."""
        return [*asks, *(ask for group in view.groups if (ask := self._more(group, view.num_rollouts)) is not None)]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group.

        Raises:
            UsageError: `most` is less than n.
        """
        most = PUBLISHED_MOST[self._mode] * num_rollouts if self._most is None else self._most
        if most < num_rollouts:
            raise UsageError(
                f"options.dars.most = {most} is less than rollouts.num_rollouts = {num_rollouts}, which every "
                "question gets: raise the one or lower the other"
            )
        return num_prompts, most

    def _more(self, group: Group, num_rollouts: int) -> Ask | None:
        """None: it is a probe, was grown before, or is not hard."""
        valid = [rollout for rollout in group.rollouts if rollout.is_valid]
        if not group.is_trained or group.num_first is not None or not valid:
            return None
        _, most = self.most(0, num_rollouts)
        right = sum(rollout.is_correct for rollout in valid)
        size = group_size(right, len(valid), num_rollouts, most, self._mode, is_std=self._is_std)
        more = min(size - len(valid), most - len(group.rollouts))
        if size == num_rollouts or more < 1:
            return None
        return Ask.of(group, more)
