"""How much a step with n → m teaches: derived from the policy gradient, with one number that is measured.

Of one question, rollout i has reward r_i and score s_i = ∇ log π(rollout i); A_i is its advantage, normalised over the
kept set S of m. The step's gradient is the mean over P questions of g = (1/m) Σ_S A_i s_i. To first order the score
carries the reward linearly, E[s | r] = d · (r - E r), with d = ∇E[r] / Var r; for rewards 0 and 1 that is exact, and d
is the gradient of the question's log-odds. Rollouts of one question are independent given their rewards. Hence

    E[g | rewards]    = signal · d,   signal = (1/m) Σ_S A_i (r_i - mean of the n)       [A / std: the std of the kept]
    E[|g|² | rewards] = signal² |d|² + noise · τ²,   noise = (1/m²) Σ_S A_i²,   τ² = variance of a score at given reward

A group of equal rewards has signal = noise = 0. The share of a step's gradient that is signal is

    share(n, m) = E[signal] / sqrt(E[signal²] + κ E[noise]),     κ = τ² / |d|²

over questions and draws of n rollouts, with the run's own selection rule and normaliser. What a step gains goes with

    share    at a fixed, small learning rate: AdamW, and clipping to a norm, divide a gradient by its root mean square,
             and to first order the gain is the step's length along d
    share²   at the learning rate that is best for each choice: the gain 1 / (1 + noise scale / batch) of McCandlish et
             al., arXiv 1812.06162, section 2.2, with the selection's own signal and noise in it

Real runs have one learning rate, near its best, and lie between the two (docs/planner.md); the value of a step is their
geometric mean, share^1.5, and a plan shows both ends.

Derived: how signal and noise depend on n, m, the rule, the normaliser and the distribution of rewards over questions.
Measured: κ, the noise of one rollout's gradient over the squared length of a question's own, by regressing squared
gradient norms at several m on E[signal²] and E[noise] (the method of two batch sizes, same source, appendix A.1).
Assumed: |d| is the same for all questions, so that every question's log-odds count alike; P as it is (its share of the
noise is in κ); no KL term. The max-variance subset is PODS's (arXiv 2504.13818, theorem 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from podsrl.plan.least_squares import fit_nonnegative
from podsrl.plan.rewards import Seen
from podsrl.select import SelectionRule
from podsrl.update.advantage import RewardAdvantage, group_advantages

DEFAULT_NOISE = 0.8
"""κ where it was not measured: with 0.3 to 1 the paper's sweep over m is flat down to n / 16 and falls at m = 2."""
MOST_NOISE = 1000.0
"""κ from which on the noise alone counts; so much too where no part of the norms goes with the signal."""
NUM_RESAMPLES = 200
MIDDLE = (0.05, 0.95)
"""The quantiles between which what was measured is said to lie."""
FIXED_RATE, BEST_RATE = 1.0, 2.0
"""Exponents of the two ends."""
BETWEEN = (FIXED_RATE + BEST_RATE) / 2
EQUAL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """Averages per group of a step n → m."""

    num_kept: int
    """m."""
    signal: float
    """E[signal], units of reward."""
    squared_signal: float
    """E[signal²]."""
    noise: float
    """E[noise]."""
    signal_share: float
    """Groups whose kept rewards are not all equal, 0 .. 1."""
    trained_rows: float
    """Rows with a gradient, 0 .. m."""
    trained_tokens: float
    """Their completion tokens."""

    def share(self, noise_ratio: float) -> float:
        """share(n, m) for κ = `noise_ratio`, between 0 and 1."""
        norm = self.squared_signal + noise_ratio * self.noise
        return self.signal / norm**0.5 if norm > 0 else 0.0


def teaching(
    groups: Seen,
    num_rollouts: int,
    num_kept: int,
    *,
    rule: SelectionRule,
    advantage: str | RewardAdvantage = "std",
    num_chunks: int = 1,
) -> Teaching:
    """Average over the groups [R, N] that were drawn, N ≥ n; their first n columns are used.

    Args:
        num_kept: m, 2 .. n.
        advantage: a key of `podsrl.update.NORMALIZERS`, or a function of rewards.
        num_chunks: select and normalise in each of that many chunks alone; divides n and m.


    Example:
        >>> from podsrl.select import max_variance
        >>> groups = Seen(rewards=np.array([[1.0, 0, 0, 1]]), lengths=np.ones((1, 4)), is_correct=np.ones((1, 4)) > 0)
        >>> result = teaching(groups, 4, 2, rule=max_variance, advantage="none")
        >>> result.signal, result.noise, result.trained_rows
        (0.25, 0.125, 2.0)
    """
    rewards, lengths = (
        torch.from_numpy(np.ascontiguousarray(a[:, :num_rollouts])).reshape(len(a) * num_chunks, -1)
        for a in (groups.rewards.astype(np.float64), groups.lengths.astype(np.float64))
    )
    kept = num_kept // num_chunks
    if kept == rewards.shape[-1]:
        index = torch.arange(kept).expand(len(rewards), kept)
    else:
        index = rule(rewards, kept, generator=torch.Generator().manual_seed(0))
    chosen = rewards.gather(-1, index)
    signal, noise, has_gradient = _signal_and_noise(chosen, rewards.mean(-1, keepdim=True), advantage)

    def mean(values: Tensor) -> float:
        return float(values.double().mean())

    # Chunks of a group are averaged: their signals add along one d, their noises are independent.
    signal = signal.reshape(-1, num_chunks).mean(-1)
    return Teaching(
        num_kept=num_kept,
        signal=mean(signal),
        squared_signal=mean(signal**2),
        noise=mean(noise) / num_chunks,
        signal_share=mean(has_gradient.any(-1).reshape(-1, num_chunks).any(-1)),
        trained_rows=mean(has_gradient.sum(-1)) * num_chunks,
        trained_tokens=mean((lengths.gather(-1, index) * has_gradient).sum(-1)) * num_chunks,
    )


def _signal_and_noise(
    chosen: Tensor, centre: Tensor, advantage: str | RewardAdvantage
) -> tuple[Tensor, Tensor, Tensor]:
    """[R, m] kept rewards and [R, 1] means of all -> signal [R], noise [R], whether a row has a gradient [R, m]."""
    advantages = group_advantages(chosen, advantage)
    signal = (advantages * (chosen - centre)).mean(-1)
    noise = (advantages**2).sum(-1) / chosen.shape[-1] ** 2
    return signal, noise, advantages.abs() > EQUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientProbe:
    """The squared gradient norm of an update beside the means of its own groups' signal² and noise."""

    num_kept: int
    """m."""
    squared_norm: float
    squared_signal: float
    noise: float


def gradient_probe(
    rewards_P_n: Sequence[Sequence[float]],
    rewards_P_K: Sequence[Sequence[float]],
    advantages: Sequence[Tensor],
    norm: float,
    *,
    num_kept: int,
    num_chunks: int = 1,
) -> GradientProbe:
    """From one update's valid rewards, kept rewards, advantages and gradient norm before clipping.

    Groups may be chunks: `num_chunks` neighbours are one question, as in `teaching`.
    """
    signals, noises = [], []
    for everything, kept, advantage in zip(rewards_P_n, rewards_P_K, advantages, strict=True):
        if not kept:
            signals.append(0.0)
            noises.append(0.0)
            continue
        a = advantage.double().cpu().numpy()
        signals.append(float((a * (np.asarray(kept) - np.mean(everything))).mean()))
        noises.append(float((a**2).sum()) / len(kept) ** 2)
    of_questions = np.reshape(signals, (-1, num_chunks)).mean(axis=1)
    return GradientProbe(
        num_kept=num_kept,
        squared_norm=norm**2,
        squared_signal=float(np.mean(of_questions**2)),
        noise=float(np.mean(noises)) / num_chunks,
    )


def noise_ratio(probes: Sequence[GradientProbe]) -> float | None:
    """κ ≥ 0: regress squared norms on signal² and noise, from updates at the same weights.

    Norms are averaged over the updates of one m, since single norms scatter. None where κ cannot be told: under three
    different m, no gradient at all, or no part that goes with the signal.
    """
    means: list[npt.NDArray[np.float64]] = []
    for size in sorted({probe.num_kept for probe in probes}):
        own = [probe for probe in probes if probe.num_kept == size]
        means.append(np.array([[p.squared_norm, p.squared_signal, p.noise] for p in own]).mean(axis=0))
    points = np.array([mean for mean in means if mean[0] > 0 and np.isfinite(mean).all()])
    if len(points) < 3:
        return None
    signal, noise = fit_nonnegative(points[:, 1:], points[:, 0])
    return float(noise / signal) if signal > 0 else None


def noise_range(steps: Sequence[Sequence[GradientProbe]]) -> tuple[float, float] | None:
    """The middle 90 % of κ by a bootstrap over the steps whose rollouts gave the probes; None from a single step."""
    if len(steps) < 2:
        return None
    random, found = np.random.default_rng(0), []
    for _ in range(NUM_RESAMPLES):
        chosen = random.integers(len(steps), size=len(steps))
        ratio = noise_ratio([probe for place in chosen for probe in steps[place]])
        found.append(MOST_NOISE if ratio is None else min(ratio, MOST_NOISE))
    low, high = np.quantile(found, MIDDLE).tolist()
    return low, high
