"""GDRO: Panaganti et al. 2026, "Group Distributionally Robust Optimization-Driven RL for LLM Reasoning", arXiv
2601.19280.

**Difficulty bins** say how hard each question is for the model now: pass@k of a question over a window of its last
groups, cut into bins by edges. A question leaves its bin when its pass@k is beyond an edge of the bin by the
hysteresis, so that noise does not move it back and forth. What is ours: pass@k of one group is the unbiased estimate of
Chen et al. (2021, arXiv 2107.03374) from all its rollouts, because groups differ in size; a question without a group is
in no bin, where the released code calls it hardest.

**Rollout-GDRO** (`Bandit`) decides how many rollouts each difficulty gets per question, at an unchanged mean. Every
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

**Prompt-GDRO** (`BinWeights`): advantages of the bins in which the model fails count more. After every step

    S(b) ← (1 - β) S(b) + β · mean loss of b          ω(b) = exp(η · clip(S(b), -C, C))

and the advantages of a group in bin b are multiplied by min(ω(b), ω_max). That is the paper's ω. Its released code
multiplies by the weight that the adversary plays, q(b) = (1 - γ) ω(b) / Σω + γ / B, which is below 1 and shrinks every
advantage: γ chooses it (0.01 there). What is ours: the loss of a bin is 1 minus the share of right rollouts of its
groups, each group counted once. The policy loss is 0 in every bin where a step is on-policy, so it says nothing of
difficulty; right and wrong lie in [0, 1] whatever the rewards' scale, so that η means the same for every task. S(b)
begins with the first loss of b, as in the released code, and stays while b has no groups; a bin that had none so far
has S = 0. A group's bin counts the group's own result, so that the first pass over a training set has bins too.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from torch import Tensor

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Ask, Group, Selection

Floats: TypeAlias = NDArray[np.float64]
Edges: TypeAlias = tuple[float, ...]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Hysteresis: TypeAlias = Annotated[float, Field(ge=0, lt=0.5)]
EDGES = (0.4, 0.75)
"""The three bins of the released code; its other choice is (0.1, 0.2, 0.4, 0.6, 0.8, 0.9)."""


class DifficultyBins:
    """The bin of every question that was asked, 0 for the hardest.

    Args:
        where: the options' table, for messages: "options.bandit".
        edges: ascending, between 0 and 1: B - 1 edges make B bins; a question on an edge is in the easier bin.
        k: of pass@k, at least 1; a group with fewer rollouts counts whether any is right.
        window: groups per question that count, the last ones; at least 1.
        hysteresis: how far beyond an edge of its bin a question must be to leave it; at least 0, under 0.5.

    Raises:
        UsageError: the edges are not ascending.

    Example:

        >>> bins = DifficultyBins("options.bandit", edges=(0.4, 0.75), k=1, window=50, hysteresis=0.0)
        >>> bins.num_bins, bins.bin_of(7)
        (3, None)
    """

    def __init__(self, where: str, edges: Sequence[float], k: int, window: int, hysteresis: float) -> None:
        ascending = all(a < b for a, b in zip((0.0, *edges), (*edges, 1.0), strict=True))
        if not edges or not ascending:
            raise UsageError(f"{where}.edges = {list(edges)}; wanted at least one, ascending, between 0 and 1")
        self.edges, self.k, self.window, self.hysteresis = tuple(edges), k, window, hysteresis
        self._recent: dict[int, tuple[float, ...]] = {}
        self._bins: dict[int, int] = {}

    @property
    def num_bins(self) -> int:
        """B."""
        return len(self.edges) + 1

    def bin_of(self, index: int) -> int | None:
        """The bin of a question; None: it was not asked yet."""
        return self._bins.get(index)

    def bin_with(self, group: Group) -> int | None:
        """The bin of a group's question with the group counted; None: nothing is known of it."""
        if group.index is None:
            return None
        return self._bin(group.index, self._window_with(group, group.index))

    def learn(self, groups: Iterable[Group]) -> None:
        """Count the outcomes of each group; one without any does not count."""
        for group in groups:
            if group.index is not None and (recent := self._window_with(group, group.index)):
                found = self._bin(group.index, recent)
                assert found is not None, "there is a group in the window"
                self._recent[group.index], self._bins[group.index] = recent, found

    def state(self) -> dict[str, Any]:
        """Four arrays: per question its index, its bin and the length of its window; the windows one after another."""
        return {
            "question": np.array(list(self._recent), dtype=np.int64),
            "bin": np.array([self._bins[index] for index in self._recent], dtype=np.int64),
            "length": np.array([len(recent) for recent in self._recent.values()], dtype=np.int64),
            "pass_at_k": np.array(list(chain.from_iterable(self._recent.values())), dtype=np.float64),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        questions, ends = state["question"].tolist(), np.cumsum(state["length"])
        windows = np.split(state["pass_at_k"], ends[:-1]) if questions else []
        self._recent = {index: tuple(window.tolist()) for index, window in zip(questions, windows, strict=True)}
        self._bins = dict(zip(questions, state["bin"].tolist(), strict=True))

    def _window_with(self, group: Group, index: int) -> tuple[float, ...]:
        own, recent = group.outcomes, self._recent.get(index, ())
        if not own:
            return recent
        return (*recent, pass_at_k(len(own), sum(own), self.k))[-self.window :]

    def _bin(self, index: int, recent: Sequence[float]) -> int | None:
        if not recent:
            return None
        value, old = math.fsum(recent) / len(recent), self._bins.get(index)
        new = bisect_right(self.edges, value)
        if old is None or new == old:
            return new
        edge = self.edges[old] if new > old else self.edges[old - 1]
        return new if abs(value - edge) >= self.hysteresis else old


def pass_at_k(n: int, num_right: int, k: int) -> float:
    """The share of the draws of k of n rollouts that hold a right one; k is at most n, or counts as n.

    Example:
        >>> pass_at_k(8, 2, 1), pass_at_k(4, 1, 2), pass_at_k(2, 1, 8)
        (0.25, 0.5, 1.0)
    """
    k = min(k, n)
    return 1 - math.comb(n - num_right, k) / math.comb(n, k)


class Bandit:
    """Group sizes by difficulty, at an unchanged mean, for `budget.rollouts`.

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
            raise UsageError(f"options.bandit.arms = {list(arms)}; wanted group sizes of at least 2, ascending")
        self.arms, self._mean, self.eta, self.gamma, self.price_rate = arms, mean, eta, gamma, price_rate
        self._bins = DifficultyBins("options.bandit", edges, k, window, hysteresis)
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

    def probabilities(self) -> Floats:
        """[B, K] with which each bin plays each arm, by EXP3P; each row sums to 1."""
        weights = np.exp(-self.eta * (self._costs - self._costs.min(axis=1, keepdims=True)))
        share = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray((1 - self.gamma) * share + self.gamma / len(self.arms))

    def mean_of(self, num_rollouts: int) -> float:
        """n̄. UsageError: it is outside the arms."""
        mean, option = (self._mean, "options.bandit.mean") if self._mean else (num_rollouts, "rollouts.num_rollouts")
        if not self.arms[0] <= mean <= self.arms[-1]:
            raise UsageError(
                f"{option} = {mean:g}: the arms of budget.rollouts = 'bandit' reach from {self.arms[0]} to "
                f"{self.arms[-1]}; wanted a mean between them: change it, or options.bandit.arms"
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


class BinWeights:
    """Advantages count more in the difficulty bins in which the model fails, for `loss.shape`.

    Args:
        beta, eta, clip: β, η, C.
        largest: ω_max.
        gamma: γ: normalise the weights, with this share of equal ones (q); None: take them as they are (ω).
        edges: between difficulty bins: ascending values of pass@k, between 0 and 1.
        k: of pass@k.
        window: groups per question that count, the last ones.
        hysteresis: how far beyond an edge of its bin a question must be to leave it.
    """

    def __init__(
        self,
        *,
        beta: Annotated[float, Field(gt=0, le=1)] = 0.12,
        eta: Annotated[float, Field(ge=0, le=10)] = 0.65,
        clip: Annotated[float, Field(gt=0, le=10)] = 5.0,
        largest: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 15.0,
        gamma: Annotated[float, Field(ge=0, le=1)] | None = None,
        edges: Edges = EDGES,
        k: Count = 4,
        window: Count = 50,
        hysteresis: Hysteresis = 0.03,
    ) -> None:
        self.beta, self.eta, self.clip, self.largest = beta, eta, clip, largest
        self.gamma, self._bins = gamma, DifficultyBins("options.bins", edges, k, window, hysteresis)
        self._scores = np.full(self._bins.num_bins, np.nan)  # S; NaN: no group so far

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages, times the weight of each group's bin."""
        weights = np.minimum(self.omega() if self.gamma is None else self.shares(self.gamma), self.largest)
        bins = [self._bins.bin_with(group) for group in groups]
        return [a if b is None else a * float(weights[b]) for a, b in zip(advantages, bins, strict=True)]

    def learn(self, groups: Sequence[Group]) -> None:
        """Move S by the groups of a step, and count them into the bins."""
        losses: dict[int, list[float]] = {}
        for group in groups:
            b, own = self._bins.bin_with(group), group.outcomes
            if b is not None and own:
                losses.setdefault(b, []).append(1 - sum(own) / len(own))
        for b, of_bin in losses.items():
            loss, old = math.fsum(of_bin) / len(of_bin), self._scores[b]
            self._scores[b] = loss if np.isnan(old) else (1 - self.beta) * old + self.beta * loss
        self._bins.learn(groups)

    def omega(self) -> Floats:
        """[B] ω of each bin."""
        return np.asarray(np.exp(self.eta * np.clip(np.nan_to_num(self._scores), -self.clip, self.clip)))

    def shares(self, gamma: float) -> Floats:
        """[B] q of each bin; they sum to 1."""
        omega = self.omega()
        return np.asarray((1 - gamma) * omega / omega.sum() + gamma / len(omega))

    def state(self) -> dict[str, Any]:
        """S [B], NaN where there is none, and the bins."""
        return {"scores": self._scores, **self._bins.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._scores = np.array(state["scores"])
        self._bins.restore(state)
