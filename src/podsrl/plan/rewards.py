"""What the next groups' rewards will look like, from the groups seen so far.

Each question has its own distribution of (reward, length, correct). Seen rollouts of a question say something about it,
those of the other questions the rest: a Dirichlet process (Ferguson 1973) whose base is all seen rollouts together,

    distribution of question q  |  N seen rollouts  ~  DP(c + N,  (c · base + Σ seen of q) / (c + N)).

For rewards 0 and 1 this is the Beta-binomial model exactly: a question's pass rate is Beta(c·p, c·(1 - p)) before, and
Beta(c·p + right, c·(1 - p) + wrong) after its rollouts were seen. So a question that was all wrong 64 times may still
be solved among 256: the posterior, not the observed rate, decides. The concentration c comes from the intraclass
correlation ρ of the rewards (one-way analysis of variance), which is 1 / (1 + c) in this model: c → 0 where questions
are all right or all wrong, large where they are all alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MAX_BASE = 1024
"""Rollouts of the base: an even sample of more."""
CONCENTRATION_RANGE = (0.05, 1000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Valid rollouts of one question, or of several."""

    rewards: Array
    """[N]"""
    lengths: Array
    """[N] tokens."""
    is_correct: Flags
    """[N]"""

    @staticmethod
    def of(rollouts: Sequence[tuple[float, int, bool]]) -> Seen:
        """From (reward, tokens, is_correct) of each rollout."""
        rewards, lengths, is_correct = zip(*rollouts, strict=True) if rollouts else ((), (), ())
        return Seen(
            rewards=np.array(rewards, dtype=np.float64),
            lengths=np.array(lengths, dtype=np.float64),
            is_correct=np.array(is_correct, dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """Different rollouts, and how much each weighs; equal ones are one, which changes no draw."""

    rollouts: Seen
    mass: Array
    """[N] above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModel:
    """Draws groups as the next questions will give them. `from_groups` makes it."""

    base: Weighted
    """All rollouts together; the masses add up to the concentration c."""
    questions: tuple[Weighted, ...]
    """Those of each question, at least one, with mass 1 per rollout."""

    @staticmethod
    def from_groups(groups: Sequence[Seen], *, concentration: float | None = None) -> RewardModel:
        """From seen groups, one per question, empty ones left out; c is estimated where it is not given.

        Raises:
            ValueError: no rollout at all.
        """
        filled = tuple(group for group in groups if len(group.rewards))
        if not filled:
            raise ValueError("no valid rollout was seen; nothing is known about rewards")
        base = _merged(_sample(filled))
        c = _concentration(filled) if concentration is None else concentration
        return RewardModel(
            base=Weighted(rollouts=base.rollouts, mass=base.mass * (c / base.mass.sum())),
            questions=tuple(_merged(group) for group in filled),
        )

    @property
    def concentration(self) -> float:
        """c: how alike questions are; pass rates are Beta(c·p, c·(1 - p))."""
        return float(self.base.mass.sum())

    @property
    def pass_rate(self) -> float:
        """Share of right answers among all seen."""
        return float(self.base.mass[self.base.rollouts.is_correct].sum() / self.base.mass.sum())

    def draw(self, num_rollouts: int, num_groups: int, *, seed: int = 0) -> Seen:
        """Sample R = `num_groups` groups [R, n], evenly over the questions.

        The first k columns of a draw are a valid draw with n = k.
        """
        generator = np.random.default_rng(seed)
        parts = [
            self._draw_question(question, count, num_rollouts, generator)
            for question, count in zip(self.questions, _shares(num_groups, len(self.questions)), strict=True)
            if count
        ]
        return _join(parts)

    def _draw_question(self, question: Weighted, count: int, num_rollouts: int, generator: np.random.Generator) -> Seen:
        atoms = _join([question.rollouts, self.base.rollouts])
        mass = np.concatenate([question.mass, self.base.mass])
        weights = generator.standard_gamma(mass, size=(count, len(mass)))  # Dirichlet, once divided by their sum
        cumulative = weights.cumsum(axis=1)
        points = generator.random((count, num_rollouts)) * cumulative[:, -1:]
        index = np.stack([np.searchsorted(row, at, side="right") for row, at in zip(cumulative, points, strict=True)])
        index = index.clip(max=len(mass) - 1)
        return Seen(rewards=atoms.rewards[index], lengths=atoms.lengths[index], is_correct=atoms.is_correct[index])


def _join(groups: Sequence[Seen]) -> Seen:
    return Seen(
        rewards=np.concatenate([group.rewards for group in groups]),
        lengths=np.concatenate([group.lengths for group in groups]),
        is_correct=np.concatenate([group.is_correct for group in groups]),
    )


def _merged(group: Seen) -> Weighted:
    """Equal rollouts as one with their count: by the Dirichlet distribution's aggregation property the same draws."""
    table = np.stack([group.rewards, group.lengths, group.is_correct.astype(np.float64)], axis=1)
    rows, counts = np.unique(table, axis=0, return_counts=True)
    rollouts = Seen(rewards=rows[:, 0], lengths=rows[:, 1], is_correct=rows[:, 2] > 0)
    return Weighted(rollouts=rollouts, mass=counts.astype(np.float64))


def _sample(groups: Sequence[Seen]) -> Seen:
    """All rollouts of all groups, or an even sample of them."""
    joined = _join(groups)
    kept = np.linspace(0, len(joined.rewards) - 1, min(len(joined.rewards), MAX_BASE)).round().astype(np.int64)
    return Seen(rewards=joined.rewards[kept], lengths=joined.lengths[kept], is_correct=joined.is_correct[kept])


def _shares(total: int, parts: int) -> list[int]:
    return [total * (i + 1) // parts - total * i // parts for i in range(parts)]


def _concentration(groups: Sequence[Seen]) -> float:
    """(1 - ρ) / ρ with the ANOVA estimate of the intraclass correlation ρ; the largest for equal questions."""
    sizes = np.array([len(group.rewards) for group in groups], dtype=np.float64)
    low, high = CONCENTRATION_RANGE
    if len(groups) < 2 or (sizes < 2).all():
        return 1.0
    means = np.array([group.rewards.mean() for group in groups])
    overall = float((sizes * means).sum() / sizes.sum())
    within = sum(float(((group.rewards - mean) ** 2).sum()) for group, mean in zip(groups, means, strict=True))
    within /= max(float(sizes.sum()) - len(groups), 1.0)
    between = float((sizes * (means - overall) ** 2).sum()) / (len(groups) - 1)
    effective = (sizes.sum() - (sizes**2).sum() / sizes.sum()) / (len(groups) - 1)
    if within == 0:
        return low
    spread = (between - within) / effective
    return high if spread <= 0 else float(np.clip(within / spread, low, high))
