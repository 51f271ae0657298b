"""Rollout-GDRO: Panaganti et al. 2026, "Group Distributionally Robust Optimization-Driven RL for LLM Reasoning", arXiv
2601.19280.

A bandit decides how many rollouts each difficulty (`systems/bins.py`) gets per question, at an unchanged mean. Every
bin b plays one arm n per step by EXP3P (Auer et al. 2002): its questions get n rollouts each. The cost of an arm is
L_b(n) = -J_b + μ n. A dynamic program picks one arm per bin so that the step has n̄ rollouts per question, or as close
as the arms allow, and the shadow price follows μ ← μ + price_rate (n̂ - n̄). What is ours, because the source is silent
or its released code cannot serve here:

    J_b      -4 s² / n, the variance of a group's mean reward as a share of its largest: s² is the sample variance of
             right and wrong in the bin's groups. This is the source's own variance proxy, whose best sizes follow its
             square-root law n_b ∝ √(variance of b). The released code takes minus the policy loss, which is 0 for every
             bin where a step is on-policy.
    learning s² gives the cost of every arm, not of the played one alone, so EXP3P scores them all and needs no
             importance weights: what remains of it is p_b(n) = (1 - γ) softmax(-η Σ L_b)(n) + γ / K. A bandit that sees
             only its own arm did not find the sizes in 200 simulated steps.
    chance   the dynamic program maximises the sum over bins of log p_b(n) + a Gumbel number: without the budget that is
             a draw from p. The released code always takes the most probable arms.
    n̂        the mean that the bins would play without the budget, Σ_n p_b(n) n over the step's groups, since the
             program holds the played mean at n̄; μ stays at 0 or above.
    unseen   a question that was not asked yet gets n̄, and is in no bin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.systems.bins import EDGES, Count, DifficultyBins, Edges, Hysteresis
from podsrl.types import Ask, Group


class Bandit:
    """Group sizes by difficulty, at an unchanged mean.

    Args:
        arms: K group sizes, ascending, each at least 2.
        mean: n̄, rollouts per question, within the arms; 0: `rollouts.num_rollouts`.
        eta: EXP3P's learning rate η.
        gamma: share γ of the draws that is uniform.
        price_rate: of the shadow price.
        edges: between difficulty bins: ascending values of pass@k, between 0 and 1.
        k: of pass@k.
        window: groups per question that count, the last ones.
        hysteresis: how far beyond an edge of its bin a question must be to leave it.

    Raises:
        UsageError: `arms` or `mean` is out of range.
    """

    def __init__(
        self,
        *,
        arms: tuple[int, ...] = tuple(range(2, 13)),
        mean: Annotated[float, Field(ge=0)] = 0.0,
        eta: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.65,
        gamma: Annotated[float, Field(gt=0, le=1)] = 0.01,
        price_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05,
        edges: Edges = EDGES,
        k: Count = 4,
        window: Count = 50,
        hysteresis: Hysteresis = 0.03,
    ) -> None:
        if not arms or arms[0] < 2 or list(arms) != sorted(set(arms)):
            raise UsageError(f"options.gdro_rollouts.arms = {list(arms)}; wanted group sizes of at least 2, ascending")
        self.arms, self._mean, self.eta, self.gamma, self.price_rate = arms, mean, eta, gamma, price_rate
        self._bins = DifficultyBins("options.gdro_rollouts", edges, k, window, hysteresis)
        self._costs = np.zeros((self._bins.num_bins, len(arms)))
        self._price = 0.0
        if mean:
            self.mean_of(0)

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """New groups get the size that their bin plays; rollouts that join a group stay."""
        mean = self.mean_of(view.num_rollouts)
        bins = [None if ask.joins else self._bins.bin_of(ask.index) for ask in asks]
        counts = np.bincount([b for b in bins if b is not None], minlength=self._bins.num_bins)
        noise = view.rng("bandit").gumbel(size=self._costs.shape)
        sizes = best_sizes(np.log(self.probabilities()) + noise, counts, self.arms, mean)
        unseen = nearest_arm(self.arms, mean)
        return [
            ask if ask.joins else replace(ask, num_rollouts=unseen if b is None else sizes[b])
            for ask, b in zip(asks, bins, strict=True)
        ]

    def learn(self, groups: Sequence[Group]) -> None:
        """Add the costs of all arms, move the price, and count the groups into the bins."""
        arms, p = np.array(self.arms), self.probabilities()
        variances: dict[int, list[float]] = {}
        excess = []
        for group in groups:
            b, own = None if group.index is None else self._bins.bin_of(group.index), group.outcomes
            if b is not None and len(own) >= 2:
                variances.setdefault(b, []).append(float(np.var(own, ddof=1)))
                excess.append(float(p[b] @ arms) - len(group.rollouts))
        for b, of_bin in variances.items():
            self._costs[b] += 4 * np.mean(of_bin) / arms + self._price * arms
        if excess:
            self._price = max(0.0, self._price + self.price_rate * float(np.mean(excess)))
        self._bins.learn(groups)

    def probabilities(self) -> NDArray[np.float64]:
        """[B, K] with which each bin plays each arm, by EXP3P; each row sums to 1."""
        weights = np.exp(-self.eta * (self._costs - self._costs.min(axis=1, keepdims=True)))
        share = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray((1 - self.gamma) * share + self.gamma / len(self.arms))

    def mean_of(self, num_rollouts: int) -> float:
        """n̄. UsageError: it is outside the arms."""
        option, mean = "rollouts.num_rollouts", float(num_rollouts)
        if self._mean:
            option, mean = "options.gdro_rollouts.mean", self._mean
        if not self.arms[0] <= mean <= self.arms[-1]:
            raise UsageError(
                f"{option} = {mean:g}: the arms of 'gdro_rollouts' reach from {self.arms[0]} to "
                f"{self.arms[-1]}; wanted a mean between them: change it, or options.gdro_rollouts.arms"
            )
        return mean

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """Every group may play the largest arm."""
        self.mean_of(num_rollouts)
        return num_prompts, self.arms[-1]

    def state(self) -> dict[str, Any]:
        """The costs [B, K], the price, and the bins."""
        return {"costs": self._costs, "price": self._price, **self._bins.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._costs, self._price = np.array(state["costs"]), float(state["price"])
        self._bins.restore(state)


def best_sizes(values: ArrayLike, counts: ArrayLike, arms: Sequence[int], mean: float) -> list[int]:
    """One arm per bin, so that the groups have `mean` rollouts each as nearly as the arms allow, and then most value.

    Args:
        values: [B, K] of each arm in each bin.
        counts: [B] groups of each bin.
        arms: [K] sizes.
        mean: rollouts per group.

    Returns:
        [B] sizes. Bins without groups get the arm nearest to the mean. Of two totals equally near, the one with more
        value counts; of two equal values, the smaller arms of the first bins.

    Example: two groups in one bin and one in the other, three rollouts each: 2 · 2 + 5 = 9.

        >>> best_sizes([[0.0, -1.0], [-1.0, 0.0]], [2, 1], arms=(2, 5), mean=3)
        [2, 5]
    """
    value, sizes = np.asarray(values, dtype=np.float64), [nearest_arm(arms, mean)] * len(np.asarray(counts))
    filled = [(b, int(count)) for b, count in enumerate(np.asarray(counts)) if count]
    best = np.full(sum(count for _, count in filled) * arms[-1] + 1, -np.inf)
    best[0] = 0.0
    choices = []
    for b, count in filled:
        options = np.full((len(arms), len(best)), -np.inf)
        for a, size in enumerate(arms):
            options[a, count * size :] = best[: len(best) - count * size] + value[b, a]
        choices.append(options.argmax(axis=0))
        best = options.max(axis=0)
    reached = np.flatnonzero(best > -np.inf)
    distance = np.abs(reached - mean * sum(count for _, count in filled))
    nearest = reached[np.isclose(distance, distance.min())]
    total = int(nearest[best[nearest].argmax()])
    for (b, count), choice in zip(reversed(filled), reversed(choices), strict=True):
        sizes[b] = arms[choice[total]]
        total -= count * sizes[b]
    return sizes


def nearest_arm(arms: Sequence[int], mean: float) -> int:
    """The arm nearest to a mean; of two equally near the smaller."""
    return min(arms, key=lambda arm: (abs(arm - mean), arm))
