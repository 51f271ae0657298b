"""TRACE (arXiv 2606.11119): rollouts go where right and wrong are both likely, first among questions, then in answers.

Of a question's n rollouts 1 / (1 + N) are *roots*, and each root brings N *continuations*: rollouts that go on behind
the first tokens of a root of the same question.

**Roots.** With v the predicted share of right answers, m roots hold a right and a wrong one with the probability

    V(m) = 1 - v^m - (1 - v)^m    for m >= 2, else 0

and the step's roots are divided among its questions so that the sum of V is the largest. Questions may get none; none
gets one. V is not concave at m = 1, so the best division is found by dynamic programming, not by marginal gains.

**Continuations.** Behind the first t tokens of a root whose answer is right (r = 1) or wrong (r = 0), k rollouts hold
one that ends otherwise with the probability

    V(k) = 1 - q^k,    q = r u + (1 - r) (1 - u)

where u is the share of right answers predicted there. This is concave, so the largest marginal gains in order are the
best division; of equal ones a random order decides.

**Predictors.** v is a ridge regression of features of the question's text (as in DOTS), u one of the policy's last
hidden state behind the t tokens. Both learn the share of right leaves among all that go through the root, or the node.
Until the first step has been learned from, all questions get the same, and u is 1/2.

**Advantages.** All rollouts of a question are one group. What a continuation shares with its root it has as given
tokens, without a loss; the root's tokens have the mean advantage of all rollouts that go through them. So each drawn
token counts once.

The paper's advantage and the form of its predictor were not found; both are ours. So are two predictors in place of
one, since nothing is generated yet when questions are chosen; nodes at token counts in place of turns; and predictions
that stay 1/50 away from 0 and 1. A root keeps one hidden state per node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from podsrl.control.base import View
from podsrl.control.question_features import features_of
from podsrl.errors import UsageError
from podsrl.lib.parts import GO_ON
from podsrl.lib.ridge import Ridge
from podsrl.lib.watch import Live, Note
from podsrl.types import Ask, Group, Parent, Rollout, Selection

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]
NOTE = "trace"
"""Of a root: the hidden states of its nodes, [K, D]."""
EDGE = 0.02
RIDGE, WINDOW = 10.0, 4096
"""Penalty and memory of the predictors."""


class Contrast:
    """Divides roots and continuations by predicted contrast, and shares advantages among those with the same tokens.

    Args:
        at: token counts behind which rollouts may go on, below `rollouts.max_new_tokens`.
        more: N, continuations per root; 0: none, and nothing is watched.
        most: roots of a question, at least n / (1 + N).
    """

    def __init__(
        self,
        *,
        at: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)],
        more: Annotated[int, Field(ge=0, le=64)] = 1,
        most: Annotated[int, Field(ge=2, le=1024)] = 16,
    ) -> None:
        self._counts, self._more, self._most = sorted({*at}), more, most
        self.at = self._counts if more else ()
        self.abilities = GO_ON if more else ()
        self._questions, self._nodes = Ridge(RIDGE, WINDOW), Ridge(RIDGE, WINDOW)

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group.

        Raises:
            UsageError: n is not divided by 1 + N, or gives fewer than two roots or more than `most`.
        """
        roots, rest = divmod(num_rollouts, 1 + self._more)
        if rest or not 2 <= roots <= self._most:
            raise UsageError(
                f"options.trace.more = {self._more} makes rollouts.num_rollouts = {num_rollouts} into "
                f"{num_rollouts / (1 + self._more):g} roots per question on average; wanted a whole number, 2 .. "
                f"options.trace.most = {self._most}"
            )
        return num_prompts, self._most * (1 + self._more)

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The roots of new questions, and the continuations of those whose roots are judged."""
        waiting = [
            group for group in view.groups if group.is_trained and all(one.parent is None for one in group.rollouts)
        ]
        rng = view.rng("contrast") if self._more and waiting else None
        further = [ask for group in waiting if rng for ask in self._further(group, rng)]
        return [*self._roots(view, asks), *further]

    def _roots(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        mean = view.num_rollouts // (1 + self._more)
        sizes = np.full(len(asks), mean)
        if asks and self._questions.is_fitted:
            right = self._questions.predicted(features_of([view.tasks[ask.index] for ask in asks]))
            sizes = divided(np.clip(right, EDGE, 1 - EDGE), mean * len(asks), self._most)
        return [replace(ask, num_rollouts=size) for ask, size in zip(asks, sizes.tolist(), strict=True) if size]

    def _further(self, group: Group, rng: np.random.Generator) -> list[Ask]:
        """Asks for the continuations of a question whose roots are judged."""
        budget = self._more * len(group.rollouts)
        plain = Ask.of(group, budget)
        nodes = [(one, count, state) for one in group.rollouts if one.is_valid for count, state in self._of(one)]
        if not nodes:
            return [replace(plain, parent=Parent(group.rollouts[0].index, 0), origin="again")]
        order = rng.permutation(len(nodes)).tolist()
        is_right = np.array([nodes[i][0].is_correct for i in order])
        right = np.full(len(nodes), 0.5)
        if self._nodes.is_fitted:
            right = np.clip(self._nodes.predicted(np.stack([nodes[i][2] for i in order])), EDGE, 1 - EDGE)
        sizes = continued(np.where(is_right, right, 1 - right), budget)
        found = sorted((i, size) for i, size in zip(order, sizes.tolist(), strict=True) if size)
        return [
            replace(plain, num_rollouts=size, parent=Parent(one.index, count), origin=f"from {one.index}")
            for i, size in found
            for one, count, _ in [nodes[i]]
        ]

    def _of(self, root: Rollout) -> list[tuple[int, Floats]]:
        """The nodes of a root: token count, and the hidden state behind so many tokens."""
        counts = [count for count in self._counts if count < len(root.token_ids)]
        states = root.notes.get(NOTE, ())
        return list(zip(counts, np.array(states, np.float64), strict=True)) if counts and len(states) else []

    def look(self, live: Live) -> list[Note]:
        """The hidden states of each root's nodes."""
        hidden = live.hidden.float().cpu().numpy()[live.row_of.cpu().numpy()]
        rows = zip(live.keys, live.notes, live.num_tokens, hidden, strict=True)
        none = np.zeros((0, hidden.shape[1]), np.float32)
        return [
            Note(key, NOTE, np.vstack([before, state]))
            for key, notes, count, state in rows
            for before in [notes.get(NOTE, none)]
            if len(before) == self._counts.index(count)  # a continuation began behind some of the counts
        ]

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages of each group, [m, T] where kept rollouts share tokens, else as they are."""
        rows = zip(groups, selections, advantages, strict=True)
        return [shared([group.rollouts[i] for i in selection.kept], values) for group, selection, values in rows]

    def learn(self, groups: Sequence[Group]) -> None:
        """Learn the shares of right leaves of the step's questions and nodes."""
        judged = [(group, seen) for group in groups if (seen := [one for one in group.rollouts if one.is_valid])]
        if judged:
            targets = np.array([mean_right(seen) for _, seen in judged])
            self._questions.learn(features_of([group.task for group, _ in judged]), targets)
        nodes = [
            (state, mean_right(through(one, count, seen)))
            for _, seen in judged
            for one in seen
            if one.parent is None
            for count, state in self._of(one)
        ]
        if nodes:
            self._nodes.learn(np.stack([state for state, _ in nodes]), np.array([right for _, right in nodes]))

    def state(self) -> dict[str, Any]:
        """What both predictors remember."""
        return {
            f"{name}/{key}": value
            for name, ridge in (("questions", self._questions), ("nodes", self._nodes))
            for key, value in ridge.state().items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, ridge in (("questions", self._questions), ("nodes", self._nodes)):
            own = {key.removeprefix(f"{name}/"): value for key, value in state.items() if key.startswith(f"{name}/")}
            ridge.restore(own)


def mean_right(rollouts: Sequence[Rollout]) -> float:
    """Share of right ones."""
    return fsum(one.is_correct for one in rollouts) / len(rollouts)


def through(root: Rollout, count: int, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The root, and those of the rollouts that go on behind its first `count` tokens, or behind more."""
    begun = ((one, one.parent) for one in rollouts if one.parent is not None)
    return [root, *(one for one, parent in begun if parent.index == root.index and parent.num_tokens >= count)]


def shared(kept: Sequence[Rollout], advantages: Tensor) -> Tensor:
    """[m, T]: a root's tokens have the mean of all kept rollouts that go through them; [m] if none shares any.

    Args:
        kept: the m kept rollouts of a group.
        advantages: theirs, [m] or [m, T].
    """
    places = {one.index: place for place, one in enumerate(kept)}
    begun = [(place, one.parent) for place, one in enumerate(kept) if one.parent is not None and one.parent.num_tokens]
    pairs = [(place, places[parent.index], parent.num_tokens) for place, parent in begun if parent.index in places]
    if not pairs:
        return advantages
    lengths = torch.tensor([len(one.token_ids) for one in kept])
    is_token = torch.arange(int(lengths.max())) < lengths[:, None]
    sums = (advantages[:, None] if advantages.ndim == 1 else advantages[:, : is_token.shape[1]]).double() * is_token
    counts, own = is_token.double().clamp(min=1), sums.clone()
    for place, root, count in pairs:
        sums[root, :count] += own[place, :count]
        counts[root, :count] += 1
    return (sums / counts).to(advantages.dtype)


def divided(right: Floats, total: int, most: int) -> Sizes:
    """[K] roots of each question, 0 or 2 .. most, so that the sum of 1 - v^m - (1 - v)^m is the largest.

    Args:
        right: [K] predicted shares of right answers, v, above 0 and below 1.
        total: roots of all questions, which can be divided so: K · 2 .. K · most can, save odd numbers where most is 2.
        most: roots of a question, at least 2.

    Example: two rollouts of each of two questions of 1/2 are mixed half of the time; one of 1/50 is hardly ever.

        >>> divided(np.array([0.5, 0.02, 0.5]), 4, 4).tolist()
        [2, 0, 2]
    """
    sizes = np.arange(most + 1)
    values = 1 - right[:, None] ** sizes - (1 - right[:, None]) ** sizes
    values[:, 0], values[:, 1] = 0.0, -np.inf
    spent = np.arange(total + 1)[:, None] - sizes
    best, chosen = np.where(np.arange(total + 1) == 0, 0.0, -np.inf), []
    for value in values:
        sums = np.where(spent >= 0, best[np.maximum(spent, 0)] + value, -np.inf)
        chosen.append(sums.argmax(axis=1))
        best = sums.max(axis=1)
    found = np.zeros(len(right), dtype=np.int64)
    for place in reversed(range(len(right))):
        found[place] = chosen[place][total]
        total -= found[place]
    return found


def continued(agree: Floats, total: int) -> Sizes:
    """[K] continuations of each node, so that the sum of 1 - q^k is the largest; of equal gains the first node's.

    Args:
        agree: [K] probabilities that a continuation ends as the root did, q, above 0 and below 1.
        total: continuations of all nodes.

    Example: gains of 1/2, 1/4, … against 1/10, 9/100, …

        >>> continued(np.array([0.5, 0.9]), 4).tolist()
        [3, 1]
    """
    gains = agree[:, None] ** np.arange(total) * (1 - agree[:, None])
    order = np.argsort(-gains, axis=None, kind="stable")[:total]
    return np.bincount(order // max(total, 1), minlength=len(agree))
