"""ARRoL (arXiv 2603.24840, ACL 2026): rollouts are ended in the middle, so that right and wrong ones are as many.

A head of two linear layers reads the model's last hidden state of a rollout that has `at` tokens, and says how likely
its answer will be right: a score s. It learns after each step from the rollouts that were judged, by cross-entropy; no
gradient reaches the policy. Scores become probabilities by bins of the last judged rollouts (s, right or wrong):

    P(b | right) = (right_b + prior) / (right + prior * bins)         P(b | wrong) likewise
    q = π P(b | right) / (π P(b | right) + (1 - π) P(b | wrong))      π = right / (right + wrong)

`by = "rollout"` is the paper's rule: a rollout lives with the probability

    p = clip(keep + δ + slope * (target - q), least, 1 - least)

by a coin of its own, with δ such that the mean of p over those judged is `keep`. It ends likely right rollouts of every
group, of the hard ones too, which have few. `by = "group"` is the lemma behind it (4.1): of those of a group that come
to `at`, one after the other is ended whose absence brings the mean q of the others nearest to `target`, until a share
of `keep` is left. Simulated with known q, groups of 16 and keep = 1/2, the mean p(1 - p) of groups is by group 1.11 to
1.18 times that without pruning and 1.20 to 1.27 times that of random pruning; by rollout at most 1.01 and 1.09 times,
and less than random where most answers are wrong.

Rollouts that end before `at` tokens are never pruned. The first `warm_steps` steps prune nothing. Head, bins and δ
stay as they are while a step is generated, so neither slots nor order change who lives.

What is ours: the bound `least` on both sides; bins, prior and window, of which accounts differ or say nothing; tanh
between the two layers, whose inner one has 32 units, and Adam's steps on their mean loss; a group keeps at least two of
those that come to `at`. A control of equal rate is the system `random` with `share = 1 - keep`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from podsrl.errors import UsageError
from podsrl.lib.watch import End, Hold, Live, Note
from podsrl.types import Group, Rollout

Floats = NDArray[np.float64]
NOTE = "arrol"
"""What the head reads of a rollout, [D]."""
WIDTH = 32
"""Units between the two layers."""
TIE = 1e-9
"""Means of q that are nearer to each other are equal: q is a quotient that was rounded."""
RATE, FITS = 0.01, 20
"""Of Adam: the step's size, and steps on each step's rollouts."""


class Quality:
    """Rollouts that a head finds superfluous end at `at` tokens.

    Args:
        at: token count at which it looks, below `rollouts.max_new_tokens`.
        keep: share of those that come so far which goes on; 1: nothing is looked at.
        by: "group" or "rollout", as above.
        target: share of right answers that is aimed at.
        slope: of p in q, with "rollout".
        least: smallest probability to live and to end, with "rollout".
        warm_steps: steps at the start in which nothing is pruned.
        bins: of the scores.
        prior: counts that every bin has beforehand.
        window: judged rollouts that are remembered.
    """

    def __init__(
        self,
        *,
        at: Annotated[int, Field(ge=1)],
        keep: Annotated[float, Field(gt=0, le=1)] = 0.5,
        by: Literal["group", "rollout"] = "group",
        target: Annotated[float, Field(ge=0, le=1)] = 0.5,
        slope: Annotated[float, Field(ge=0)] = 0.5,
        least: Annotated[float, Field(ge=0, lt=0.5)] = 0.1,
        warm_steps: Annotated[int, Field(ge=0)] = 20,
        bins: Annotated[int, Field(ge=1, le=4096)] = 128,
        prior: Annotated[float, Field(gt=0)] = 1.0,
        window: Annotated[int, Field(ge=1, le=2**20)] = 2048,
    ) -> None:
        if by == "rollout" and keep < 1 and not least <= keep <= 1 - least:
            raise UsageError(
                f"options.arrol.keep = {keep} cannot be the mean of probabilities of {least} .. {1 - least}: lower "
                "options.arrol.least, or set options.arrol.by = 'group'"
            )
        self.at = () if keep == 1 else (at,)
        self._keep, self._by, self._target, self._slope, self._least = keep, by, target, slope, least
        self._warm_steps, self._bins, self._prior, self._window = warm_steps, bins, prior, window
        self._num_steps, self._head = 0, Head()
        self._remember(np.zeros(0), np.zeros(0))

    def look(self, live: Live) -> list[End | Hold | Note]:
        """Note what the head reads, and end or hold those that are not to live."""
        new = live.only([i for i, notes in enumerate(live.notes) if NOTE not in notes])  # others came here, and go on
        features = new.hidden[new.row_of].float().cpu().numpy()
        notes = [Note(key, NOTE, row) for key, row in zip(new.keys, features, strict=True)]
        if self._num_steps < self._warm_steps:
            return [*notes]
        if self._by == "group":
            return [*notes, *map(Hold, new.keys)]
        lives = new.coins("prune/quality") < self._chances[self._bin(self._head(features))]
        return [*notes, *(End(key) for key, stays in zip(new.keys, lives.tolist(), strict=True) if not stays)]

    def together(self, rollouts: Sequence[Rollout]) -> list[int]:
        """Of those that are held, the share `keep` whose mean q is near the target."""
        waiting = [done for done in rollouts if done.is_open]
        likely = self._likely[self._bin(self._head(np.array([done.notes[NOTE] for done in waiting], np.float64)))]
        return [waiting[i].index for i in balanced(likely, max(2, math.ceil(self._keep * len(waiting))), self._target)]

    def learn(self, groups: Sequence[Group]) -> None:
        """Remember scores and outcomes of the rollouts that were judged, then train the head on them."""
        self._num_steps += 1
        judged = [one for group in groups for one in group.rollouts if one.is_valid and NOTE in one.notes]
        if judged:
            features = np.array([one.notes[NOTE] for one in judged], np.float64)
            right = np.array([one.is_correct for one in judged], np.float64)
            scores = self._head(features)
            self._remember(np.append(self._scores, scores), np.append(self._right, right))
            self._head.fit(features, right)

    def state(self) -> Mapping[str, Any]:
        """Steps, the head, and what is remembered."""
        return {"num_steps": self._num_steps, "scores": self._scores, "right": self._right, "head": self._head.weights}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._num_steps, self._head = state["num_steps"], Head(state["head"].copy())
        self._remember(state["scores"], state["right"])

    def _remember(self, scores: Floats, right: Floats) -> None:
        """The last of these, with q and the probability to live of each bin."""
        self._scores, self._right = scores[-self._window :], right[-self._window :]
        bins = self._bin(self._scores)
        hits = np.bincount(bins, self._right, self._bins).astype(np.float64)
        misses = np.bincount(bins, 1 - self._right, self._bins).astype(np.float64)
        self._likely = posterior(hits, misses, self._prior)
        wanted = self._slope * (self._target - self._likely)
        self._chances = chances(wanted, hits + misses, self._keep, self._least)

    def _bin(self, scores: Floats) -> NDArray[np.int64]:
        return np.minimum((scores * self._bins).astype(np.int64), self._bins - 1)


def posterior(hits: Floats, misses: Floats, prior: float) -> Floats:
    """[bins] probability of a right answer in each bin, from the counts of right and wrong ones; 1/2 without any.

    Example:
        >>> posterior(np.array([3.0, 0.0]), np.array([1.0, 2.0]), 1.0).round(3).tolist()
        [0.667, 0.25]
    """
    right, wrong = (each.sum() * (each + prior) / (each.sum() + prior * len(each)) for each in (hits, misses))
    found: Floats = np.divide(right, right + wrong, out=np.full(len(hits), 0.5), where=right + wrong > 0)
    return found


def chances(wanted: Floats, counts: Floats, keep: float, least: float) -> Floats:
    """[bins] clip(keep + δ + wanted, least, 1 - least), with δ such that their mean, weighted by counts, is `keep`."""
    if not counts.any():
        return np.full(len(wanted), keep)
    low, high = -1 - np.abs(wanted).max(), 1 + np.abs(wanted).max()
    for _ in range(64):
        middle = (low + high) / 2
        found: Floats = np.clip(keep + middle + wanted, least, 1 - least)
        low, high = (low, middle) if found @ counts > keep * counts.sum() else (middle, high)
    return found


def balanced(likely: Floats, size: int, target: float) -> list[int]:
    """Places of those left when one after the other goes, until `size` are left, whose absence brings the mean of the
    others nearest to the target; of equals the last.

    Example:
        >>> balanced(np.array([0.1, 0.2, 0.1, 0.9]), 2, 0.5)
        [0, 3]
    """
    left = np.arange(len(likely))
    while len(left) > size:
        others = likely[left].sum() - likely[left]
        gaps = np.abs(others - target * (len(left) - 1))[::-1]
        left = np.delete(left, len(left) - 1 - int((gaps <= gaps.min() + TIE).argmax()))
    return left.tolist()


class Head:
    """Two linear layers on features [B, D]: scores 0 to 1, all 1/2 until it is fitted.

    Args:
        weights: [3, WIDTH * (D + 2) + 1], as `weights` of another; None: new ones.
    """

    def __init__(self, weights: Floats | None = None) -> None:
        self.weights = np.zeros((3, 0)) if weights is None else weights
        """The weights, Adam's two means of their gradients."""

    def __call__(self, features: NDArray[Any]) -> Floats:
        """[B] scores."""
        if self.weights.size == 0:
            return np.full(len(features), 0.5)
        return self._forward(features)[1]

    def fit(self, features: Floats, right: Floats) -> None:
        """Some steps of Adam on the mean cross-entropy of features [B, D] and outcomes [B] of 0 and 1."""
        if self.weights.size == 0:
            first = np.random.default_rng(0).normal(size=(features.shape[1], WIDTH)) / math.sqrt(features.shape[1])
            self.weights = np.zeros((3, first.size + 2 * WIDTH + 1))
            self.weights[0, : first.size] = first.ravel()
        for _ in range(FITS):
            gradient = self.gradient(features, right)
            self.weights[1] = 0.9 * self.weights[1] + 0.1 * gradient
            self.weights[2] = 0.99 * self.weights[2] + 0.01 * gradient**2
            self.weights[0] -= RATE * self.weights[1] / (np.sqrt(self.weights[2]) + 1e-8)

    def gradient(self, features: Floats, right: Floats) -> Floats:
        """Of the mean cross-entropy, by the weights."""
        inner, scores = self._forward(features)
        error = (scores - right) / len(right)
        behind = np.outer(error, self._split(features)[2]) * (1 - inner**2)
        return np.concatenate(
            [(features.T @ behind).ravel(), behind.sum(axis=0), inner.T @ error, error.sum(keepdims=True)]
        )

    def _forward(self, features: NDArray[Any]) -> tuple[Floats, Floats]:
        first, shift, second, bias = self._split(features)
        inner = np.tanh(features @ first + shift)
        return inner, 1 / (1 + np.exp(-np.clip(inner @ second + bias, -50, 50)))

    def _split(self, features: NDArray[Any]) -> tuple[Floats, Floats, Floats, float]:
        flat, size = self.weights[0], features.shape[1] * WIDTH
        first = flat[:size].reshape(-1, WIDTH)
        return first, flat[size : size + WIDTH], flat[size + WIDTH : -1], float(flat[-1])
