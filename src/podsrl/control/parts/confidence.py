"""XRPO's allocation: rollouts go to the questions whose mean reward a further rollout makes most certain.

A step has P · n rollouts to give. The first of `phases` rounds asks the same number of every question. Every further
round gives its share of the rest one rollout at a time to the question with the highest priority (Bamba et al. 2025,
arXiv 2510.06672)

    h(k) = t(1 - alpha / 2, k - 1) · s / sqrt(k)          half the confidence interval of a mean of k rewards
    priority(k) = h(k) - h(k + 1) + explore · sqrt(log(1 + T) / k)

where k is how many rollouts the question has, s the standard deviation of its rewards and T the number of rollouts of
the step before the round. s and T stay as they are during a round, so every question's priority falls with k, and one
rollout after the other gives what the largest priorities of all give at once.

What is ours: the first round has n / phases rollouts of each question, at least 2, and the others share the rest
evenly. s² = ((k - 1) · s_k² + prior / 4) / (k - 1 + prior), because rewards that happen to be all equal are no
certainty: 1/4 is the largest variance of a reward between 0 and 1, and it counts as `prior` further rewards. No
question gets more than `largest` · n rollouts, a bound that memory can be planned for. The paper never varies explore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import lgamma, pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Ask, Group

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_NODES = 64
"""Of Gauss and Legendre's rule, which makes the quantiles exact to 1e-12."""


class Confidence:
    """Rollouts by the width of the confidence interval of each question's mean reward; it learns nothing.

    Args:
        phases: rounds over which the rollouts are given out.
        alpha: 1 - alpha is the level of the confidence interval.
        explore: weight of the second term.
        prior: how many rewards the prior variance counts as.
        largest: a question gets at most `largest` · n rollouts.

    Raises:
        UsageError: an option out of its range.
    """

    def __init__(
        self, *, phases: int = 3, alpha: float = 0.05, explore: float = 0.005, prior: float = 1.0, largest: int = 4
    ) -> None:
        for name, value, is_good, wanted in (
            ("phases", phases, 1 <= phases <= 16, "1 .. 16"),
            ("alpha", alpha, 1e-6 <= alpha < 1, "a number from 0.000001 to below 1"),
            ("explore", explore, 0 <= explore <= 1e6, "a number from 0 to 1,000,000"),
            ("prior", prior, 0 < prior <= 1e6, "a number above 0, at most 1,000,000"),
            ("largest", largest, 1 <= largest <= 64, "1 .. 64"),
        ):
            if not is_good:
                raise UsageError(f"options.confidence.{name} = {value}; wanted {wanted}")
        self._phases, self._alpha, self._explore = phases, alpha, explore
        self._prior, self._largest = prior, largest

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """New questions of round 0 get the first share; later rounds add the rest. New ones of later rounds get n."""
        if view.round == 0:
            first = self._first(view.num_rollouts)
            return [replace(ask, num_rollouts=first) for ask in asks]
        groups = [group for group in view.groups if group.is_trained]
        if view.round >= self._phases or not groups:
            return asks
        sizes = np.array([len(group.rollouts) for group in groups])
        rest = view.num_rollouts * len(groups) - int(sizes.sum())
        share = -(-rest // (self._phases - view.round))  # rounded up: an empty round would end the step
        more = self._more(groups, sizes, share, most=self._largest * view.num_rollouts)
        joined = [
            Ask(index=group.index, num_rollouts=count, joins=group.id)
            for group, count in zip(groups, more.tolist(), strict=True)
            if count and group.index is not None
        ]
        return [*asks, *joined]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group.

        Raises:
            UsageError: fewer than two rollouts per question, which have no standard deviation.
        """
        if num_rollouts < 2:
            raise UsageError(
                f"budget.rollouts = 'confidence' has rollouts.num_prompts · rollouts.num_rollouts = "
                f"{num_prompts * num_rollouts} rollouts to give; wanted at least 2 of each of {num_prompts} questions"
            )
        first = self._first(num_rollouts)
        is_all = first == num_rollouts
        total = num_prompts * num_rollouts - first * (num_prompts - 1)
        return num_prompts, num_rollouts if is_all else min(self._largest * num_rollouts, total)

    def _first(self, num_rollouts: int) -> int:
        return min(num_rollouts, max(2, num_rollouts // self._phases))

    def _more(self, groups: Sequence[Group], sizes: Ints, share: int, most: int) -> Ints:
        """How many rollouts of `share` each group gets."""
        if share <= 0:
            return np.zeros(len(groups), dtype=np.int64)
        widths = np.arange(most)  # a group of k rollouts has most - k places left
        counts = np.minimum(np.maximum(sizes, 2)[:, None] + widths, most)
        factors = half_widths(self._alpha, most + 1)
        gains = self._spreads(groups)[:, None] * (factors[counts] - factors[counts + 1])
        gains += self._explore * np.sqrt(np.log1p(sizes.sum()) / counts)
        gains[sizes[:, None] + widths >= most] = -np.inf
        best = np.argsort(-gains, axis=None, kind="stable")[:share]
        return np.bincount(best // most, minlength=len(groups))

    def _spreads(self, groups: Sequence[Group]) -> Floats:
        """[groups] standard deviations, with the prior's share."""
        found = []
        for group in groups:
            rewards = np.array([rollout.reward for rollout in group.rollouts if rollout.is_valid])
            freedom = max(len(rewards) - 1, 0)
            squares = float(((rewards - rewards.mean()) ** 2).sum()) if len(rewards) else 0.0
            found.append(sqrt((squares + self._prior / 4) / (freedom + self._prior)))
        return np.array(found)


@lru_cache(maxsize=8)
def half_widths(alpha: float, most: int) -> Floats:
    """Half the 1 - alpha confidence interval of a mean of k numbers with standard deviation 1: [most + 1], by k.

    Infinite for k < 2.

    Example:
        >>> half_widths(0.05, 10)[[2, 10]].round(4).tolist()
        [8.9846, 0.7154]
    """
    found = np.full(most + 1, np.inf)
    sizes = np.arange(2, most + 1)
    found[2:] = t_quantiles(alpha, sizes - 1) / np.sqrt(sizes)
    found.flags.writeable = False
    return found


def t_quantiles(alpha: float, freedom: Ints) -> Floats:
    """t with P(|X| > t) = alpha, X having Student's t distribution, by degrees of freedom (1, 2, …).

    With t = sqrt(f) · tan(angle), P(|X| <= t) is the integral of cos(u)^(f - 1) from 0 to the angle, divided by that
    from 0 to pi / 2. It is concave in the angle, so that Newton's steps rise to the solution from the
    normal distribution's quantile, which lies below.

    Example:
        >>> t_quantiles(0.05, np.array([1, 2, 30])).round(4).tolist()
        [12.7062, 4.3027, 2.0423]
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    whole = np.array([sqrt(pi) / 2 * np.exp(lgamma(f / 2) - lgamma((f + 1) / 2)) for f in freedom.tolist()])
    angle = np.arctan(NormalDist().inv_cdf(1 - alpha / 2) / np.sqrt(freedom))
    for _ in range(30):
        u = angle[:, None] * (1 + nodes) / 2
        inside = (np.cos(u) ** (freedom[:, None] - 1) @ weights) * angle / 2
        step = ((1 - alpha) * whole - inside) / np.cos(angle) ** (freedom - 1)
        angle = angle + step
        if np.all(np.abs(step) <= 1e-12 * angle):
            break
    return np.sqrt(freedom) * np.tan(angle)
