"""XRPO's novelty: a right answer that the policy found unlikely has a larger advantage.

With s_i the mean log-prob of answer i's tokens and s the mean of s_i over the group (Bamba et al. 2025, arXiv
2510.06672), the advantage A of a right answer becomes

    A + min(max(weight · (1 - exp(s_i - s)), 0), bound · A)

so that A stays between A and (1 + bound) · A. Wrong answers keep theirs.

What is ours: s runs over all answers of the group that answered the same prompt, those that are not kept too, since
they show what the policy usually says; a guided answer is compared with guided ones. The log-probs are those of the
policy that generated, after temperature and truncation. A value that is not above 0 stays as it is, also for a right
answer. Advantages per token are raised token by token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.types import Group, Selection


class Novelty:
    """A larger advantage for right answers that the policy found unlikely.

    Args:
        weight: of the novelty 1 - exp(s_i - s), at least 0.
        bound: largest share of the advantage that is added, at least 0.

    Raises:
        UsageError: an option out of its range.
    """

    def __init__(self, *, weight: float = 2.5, bound: float = 0.5) -> None:
        for name, value in (("weight", weight), ("bound", bound)):
            if not 0 <= value <= 1e6:
                raise UsageError(f"options.novelty.{name} = {value}; wanted a number from 0 to 1,000,000")
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
    scores = torch.from_numpy(_means([rollout.completion.logprobs for rollout in group.rollouts]))
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
