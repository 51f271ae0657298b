"""XRPO (Bamba et al. 2025, arXiv 2510.06672): its allocation, its examples and its novelty, each a part of its own.

**Allocation** (`Confidence`): rollouts go to the questions whose mean reward a further rollout makes most certain. A
step has P · n rollouts to give. The first of `phases` rounds asks the same number of every question. Every further
round gives its share of the rest one rollout at a time to the question with the highest priority

    h(k) = t(1 - alpha / 2, k - 1) · s / sqrt(k)          half the confidence interval of a mean of k rewards
    priority(k) = h(k) - h(k + 1) + explore · sqrt(log(1 + T) / k)

where k is how many rollouts the question has, s the standard deviation of its rewards and T the number of rollouts of
the step before the round. s and T stay as they are during a round, so every question's priority falls with k, and one
rollout after the other gives what the largest priorities of all give at once. What is ours: the first round has
n / phases rollouts of each question, at least 2, and the others share the rest evenly.
s² = ((k - 1) · s_k² + prior / 4) / (k - 1 + prior), because rewards that happen to be all equal are no certainty: 1/4
is the largest variance of a reward between 0 and 1, and it counts as `prior` further rewards. No question gets more
than `largest` · n rollouts, a bound that memory can be planned for. The paper never varies explore.

**Examples** (`Examples`): a question that nobody solves is asked again behind solved questions that are like it. A
group of which no rollout is right so far gets its further rollouts with up to `count` solved examples before the
question. The examples are verified solutions of this run: right rollouts, from a store that grows with every step. So
it needs rounds, such as those of the allocation. What is ours: likeness is the cosine of hashed
character n-grams of the questions' texts, in place of an embedding model of eight billion parameters. The store holds
one solution of each of the `size` questions that were solved last, and none of more than `max_characters`. A question
is no example for itself, nor for one with the same text. Where the store has nothing that fits, the question is asked
plainly. The update trains on the prompt that was answered, with the examples, because the rollouts are on-policy for no
other; the paper does not say. Special tokens stay what they were: a solution, which a model wrote, is plain text, and
in chat messages it is a message of its own, so that it cannot change how the question's own `TokenMarkup` is read. A
prompt that is one text of `TokenMarkup` is asked plainly, since nothing can be put before it without being read as
markup too.

**Novelty** (`Novelty`): a right answer that the policy found unlikely has a larger advantage. With s_i the mean
log-prob of answer i's tokens and s the mean of s_i over the group, the advantage A of a right answer becomes

    A + min(max(weight · (1 - exp(s_i - s)), 0), bound · A)

so that A stays between A and (1 + bound) · A. Wrong answers keep theirs. What is ours: s runs over all answers of the
group that answered the same prompt, those that are not kept too, since they show what the policy usually says; a guided
answer is compared with guided ones. The log-probs are those of the policy that generated, after temperature and
truncation. A value that is not above 0 stays as it is, also for a right answer. Advantages per token are raised token
by token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice, pairwise
from math import lgamma, pi, sqrt
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.tasks.solved import after_system, with_examples
from podsrl.types import Ask, Group, Selection, Task, TokenMarkup

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Factor = Annotated[float, Field(ge=0, le=1e6)]
Vector = NDArray[np.float32]
ORIGIN = "examples"
"""`Rollout.origin` of those that were asked with examples."""
_GRAMS = (3, 4, 5)
"""Lengths of the n-grams, in bytes of UTF-8."""
_BUCKETS = 1024
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
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
    """

    def __init__(
        self,
        *,
        phases: Annotated[int, Field(ge=1, le=16)] = 3,
        alpha: Annotated[float, Field(ge=1e-6, lt=1)] = 0.05,
        explore: Factor = 0.005,
        prior: Annotated[float, Field(gt=0, le=1e6)] = 1.0,
        largest: Annotated[int, Field(ge=1, le=64)] = 4,
    ) -> None:
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
        joined = [Ask.of(group, count) for group, count in zip(groups, more.tolist(), strict=True) if count]
        return [*asks, *joined]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group.

        Raises:
            UsageError: fewer than two rollouts per question, which have no standard deviation.
        """
        if num_rollouts < 2:
            raise UsageError(
                f"systems = 'xrpo' has rollouts.num_prompts · rollouts.num_rollouts = "
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


class Examples:
    """Solved examples before questions that no rollout has solved so far.

    Args:
        count: examples per question, at most.
        size: solutions in the store, at most.
        max_characters: a longer solution is not stored.
    """

    def __init__(
        self,
        *,
        count: Annotated[int, Field(ge=1, le=16)] = 2,
        size: Annotated[int, Field(ge=1, le=8192)] = 1024,
        max_characters: Annotated[int, Field(ge=1, le=2**20)] = 4000,
    ) -> None:
        self._count, self._size, self._max_characters = count, size, max_characters
        self._solutions: dict[int, str] = {}
        """By the question's place in the training set, the one that was solved longest ago first."""
        self._vectors: dict[int, Vector] = {}
        """Of questions that were looked at, for speed."""

    def guide(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The asks that join an all-wrong group, with examples before their question."""
        unsolved = {group.id for group in view.groups if not any(rollout.is_correct for rollout in group.rollouts)}
        places = [i for i, ask in enumerate(asks) if ask.joins in unsolved and ask.prompt is None]
        guided = list(asks)
        if not places or not self._solutions:
            return guided
        known = list(self._solutions)
        vectors = np.stack([self._vector(index, view.tasks) for index in known])
        for i in places:
            index, task = asks[i].index, view.tasks[asks[i].index]
            likeness = vectors @ self._vector(index, view.tasks)
            nearest = (known[place] for place in np.argsort(-likeness, kind="stable"))
            fitting = (other for other in nearest if other != index and fits(view.tasks[other], task))
            examples = [(view.tasks[other], self._solutions[other]) for other in islice(fitting, self._count)]
            if examples:
                guided[i] = replace(asks[i], prompt=with_examples(task, examples), origin=ORIGIN)
        return guided

    def learn(self, groups: Sequence[Group]) -> None:
        """Store the first right rollout of each group whose text is short enough."""
        for group in groups:
            texts = (rollout.text for rollout in group.rollouts if rollout.is_correct and rollout.is_valid)
            solution = next((text for text in texts if 0 < len(text) <= self._max_characters), None)
            if solution is not None and group.index is not None:
                self._solutions.pop(group.index, None)
                self._solutions[group.index] = solution
        for index in list(self._solutions)[: -self._size]:
            del self._solutions[index]

    def state(self) -> Mapping[str, Any]:
        """The store, as arrays: places, and the solutions' bytes with the length of each."""
        parts = [text.encode("utf-8", "surrogatepass") for text in self._solutions.values()]
        return {
            "indices": np.array(list(self._solutions), dtype=np.int64),
            "lengths": np.array([len(part) for part in parts], dtype=np.int64),
            "solutions": np.frombuffer(b"".join(parts), dtype=np.uint8),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        blob = state["solutions"].tobytes()
        ends = np.concatenate([[0], np.cumsum(state["lengths"])]).tolist()
        texts = [blob[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends)]
        self._solutions = dict(zip(state["indices"].tolist(), texts, strict=True))

    def _vector(self, index: int, tasks: Sequence[Task]) -> Vector:
        if index not in self._vectors:
            if len(self._vectors) >= 2 * self._size:
                self._vectors.clear()
            self._vectors[index] = vector_of(tasks[index])
        return self._vectors[index]


def fits(example: Task, task: Task) -> bool:
    """Whether one may stand before the other: both chats, or both plain texts, and not the same question."""
    prompts = (example.prompt, task.prompt)
    if any(isinstance(prompt, TokenMarkup) for prompt in prompts) or _question(example) == _question(task):
        return False
    return isinstance(example.prompt, str) == isinstance(task.prompt, str)


def vector_of(task: Task) -> Vector:
    """[1024] counts of the question's hashed n-grams, scaled to length 1; the dot product of two is their likeness.

    All 0 where the text is too short.
    """
    data = np.frombuffer(_question(task).encode("utf-8", "surrogatepass"), dtype=np.uint8).astype(np.uint64)
    found = np.zeros(_BUCKETS, dtype=np.float32)
    for length in _GRAMS:
        if len(data) >= length:
            powers = _FACTOR ** np.arange(1, length + 1, dtype=np.uint64)
            hashes = np.convolve(data, powers, "valid") >> np.uint64(54)  # the highest bits mix best
            found += np.bincount(hashes.astype(np.int64), minlength=_BUCKETS)
    return found / (np.linalg.norm(found) or 1.0)


def _question(task: Task) -> str:
    """The text that tells questions apart; a system prompt is the same for all."""
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n".join(message["content"] for message in after_system(task))


class Novelty:
    """A larger advantage for right answers that the policy found unlikely.

    Args:
        weight: of the novelty 1 - exp(s_i - s), at least 0.
        bound: largest share of the advantage that is added, at least 0.
    """

    def __init__(self, *, weight: Factor = 2.5, bound: Factor = 0.5) -> None:
        self._weight, self._bound = weight, bound

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages [m] or [m, T] of each group, those of unlikely right answers raised."""
        return [self._raised(*each) for each in zip(groups, selections, advantages, strict=True)]

    def _raised(self, group: Group, selection: Selection, advantages: Tensor) -> Tensor:
        kept = list(selection.kept)
        is_right = torch.tensor([group.rollouts[i].is_correct for i in kept], dtype=torch.bool)
        bonus = torch.where(is_right, self._weight * (1 - likelihoods(group)[kept]), 0.0).clamp(min=0)
        most = self._bound * advantages.to(torch.float64).clamp(min=0)
        bonus = bonus.reshape(-1, *[1] * (advantages.ndim - 1))
        return (advantages + torch.minimum(bonus, most)).to(advantages.dtype)


def likelihoods(group: Group) -> Tensor:
    """exp(s_i - s) of every rollout: [n] float64, above 1 for an answer that is likelier than the mean of its prompt's.

    1 for a pruned rollout, which is in no mean.
    """
    scores = torch.from_numpy(_means([rollout.drawn_logprobs for rollout in group.rollouts]))
    found = torch.ones_like(scores)
    same_prompt: dict[tuple[int, ...] | None, list[int]] = defaultdict(list)
    for i, rollout in enumerate(group.rollouts):
        if not rollout.is_pruned:
            same_prompt[rollout.prompt_ids].append(i)
    for places in same_prompt.values():
        found[places] = (scores[places] - scores[places].mean()).exp()
    return found


def _means(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """The mean of each row, 0 for an empty one; of log-probs in float32, as another process holds them."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    values = np.fromiter(chain.from_iterable(rows), dtype=np.float32, count=int(lengths.sum()))
    sums = np.bincount(np.repeat(np.arange(len(rows)), lengths), weights=values, minlength=len(rows))
    return sums / np.maximum(lengths, 1)
