"""DUET's allocation by cost (arXiv 2605.08441, and its public code): rollouts where rewards vary and answers are short.

Of a question whose rewards have the standard deviation s, n rollouts give a mean of the variance s² / n, and they cost
n · L tokens, L being the mean length of its answers. Given all tokens of a step, the sum of the variances is least with

    n ∝ s / √L        Neyman's allocation with costs

rounded, and bounded by `least` and `most`. One multiplier holds for all questions: the largest with which the expected
tokens are at most `share` times those of n rollouts of each. It is found exactly: the multipliers at which one more
rollout is given are known, and they are gone through in order.

What is known of a question are its right and valid rollouts and their tokens, older ones counting less: each further
group of it multiplies what was there by `memory`. To these comes one rollout of the mean of all questions, so a
question that was never asked counts as the mean. With p its share of right ones, s = √(p (1 - p)). The
recipe's `loss.aggregate` is `group_mean`: it weighs all questions alike, for which this allocation is the best.

What is ours: the multiplier, which the code bisects in ten steps; s of right and wrong, where the code has that of the
reward times the answer's log-probability, and for a new question a regression on the prompt's log-probability, fitted
beforehand; `memory`, which the code lacks; and at least two rollouts, since one has no advantage. Not here is the other
half of DUET, which ends answers that show no final answer in time and weighs the others up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Ask, Group

Floats = NDArray[np.float64]
_SLACK = 1 + 1e-9
"""Sums of tokens may round up."""


class Neyman:
    """Rollouts in proportion to s / √length; n of each before a group was seen.

    Args:
        share: of the tokens that n rollouts of each question would take.
        least, most: rollouts of a question. Where both are n, every question gets n.
        memory: how much a question's older groups count when it has a new one, 0 to 1.

    Raises:
        UsageError: `least` is more than `most`.
    """

    def __init__(
        self,
        *,
        share: Annotated[float, Field(gt=0, le=1)] = 1.0,
        least: Annotated[int, Field(ge=2)] = 2,
        most: Annotated[int, Field(ge=2)] = 32,
        memory: Annotated[float, Field(ge=0, le=1)] = 0.5,
    ) -> None:
        if least > most:
            raise UsageError(f"options.duet.least = {least} is more than options.duet.most = {most}")
        self._share, self._least, self._most, self._memory = share, least, most, memory
        self._counts: Floats = np.zeros((0, 3))
        """[questions, 3] right and valid rollouts, and their tokens, by the question's place in the training set."""

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """New groups get their size; rollouts that join a group stay."""
        new = np.array([ask.index for ask in asks if ask.joins is None], dtype=np.int64)
        if not len(new) or not self._counts[:, 1].any():
            return asks
        spread, length = self.known(new)
        tokens = self._share * view.num_rollouts * float(length.sum())
        sizes = iter(allocated(spread, length, tokens, self._least, self._most).tolist())
        return [ask if ask.joins else replace(ask, num_rollouts=next(sizes)) for ask in asks]

    def known(self, indices: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """s and L of these questions, [K] each, once a group was seen."""
        right, valid, tokens = self._counts.sum(axis=0).tolist()
        mean = np.array([(right + 0.5) / (valid + 1), 1.0, max(tokens / valid, 1.0)])  # half right: p is not 0 or 1
        is_known = indices < len(self._counts)
        own = np.tile(mean, (len(indices), 1))
        own[is_known] += self._counts[indices[is_known]]
        p = own[:, 0] / own[:, 1]
        return np.sqrt(p * (1 - p)), own[:, 2] / own[:, 1]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group.

        Raises:
            UsageError: `least` rollouts of each question take more than the tokens there are.
        """
        if self._share * num_rollouts < self._least:
            raise UsageError(
                f"options.duet.share = {self._share:g} of rollouts.num_rollouts = {num_rollouts} is less than "
                f"options.duet.least = {self._least}, which every question gets: raise one of the first two"
            )
        return num_prompts, max(num_rollouts, self._most)

    def learn(self, groups: Sequence[Group]) -> None:
        """Count the groups of a step."""
        seen = [(group.index, own, group) for group in groups if group.index is not None and (own := group.outcomes)]
        more = max((index + 1 - len(self._counts) for index, *_ in seen), default=0)
        self._counts = np.pad(self._counts, ((0, max(0, more)), (0, 0)))
        for index, own, group in seen:
            lengths = [rollout.num_drawn for rollout in group.rollouts if rollout.is_valid]
            new = sum(own), len(own), len(own) * sum(lengths) / len(lengths)
            self._counts[index] = self._memory * self._counts[index] + new

    def state(self) -> dict[str, Any]:
        """The counts."""
        return {"counts": self._counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._counts = np.array(state["counts"])


def allocated(spread: Floats, length: Floats, tokens: float, least: int, most: int) -> NDArray[np.int64]:
    """[K] rollouts of each question: c · spread / √length, rounded and bounded, with the largest c that fits.

    Args:
        spread: [K] standard deviations, above 0.
        length: [K] tokens of a rollout, above 0.
        tokens: of all; questions get `least` of them whatever they take.
        least, most: bounds of a size.

    Example: of equal spread, and four times as long; 8 + 4 · 4 = 24 tokens.

        >>> allocated(np.array([0.5, 0.5]), np.array([1.0, 4.0]), 24, 2, 32).tolist()
        [8, 4]
    """
    sizes = np.arange(least, most)  # a question of so many gets one more where c passes (size + 1/2) √length / spread
    passed = (sizes + 0.5) * (np.sqrt(length) / spread)[:, None]
    order = np.argsort(passed, axis=None, kind="stable")
    whose = order // max(1, len(sizes))
    spent = least * length.sum() + np.cumsum(length[whose])
    return least + np.bincount(whose[spent <= tokens * _SLACK], minlength=len(spread))
