"""Keep as many of a group as are worth their update: the subset of most signal per cost.

docs/selection-proofs.md proves it.

The signal of k kept rewards is their sum of squares about their own mean, k times the variance: for r right and w wrong
ones r · w / (r + w). Their cost is k rows, and what the group has cost before the update, in rows.

    right ones of 64              1    2    3    4    5    6    7
    kept at an overhead of 13     5    7   10   12   14   16   16     (m = 16)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Generator, Tensor

from podsrl.errors import UsageError
from podsrl.lib.rounding import are_equal
from podsrl.select.variance import max_variance, ordered_rewards
from podsrl.types import Group

OVERHEAD = 13.0
"""Rows: on a CPU a group of 64 rollouts of the demo costs so many before its update."""
_BLOCK_ELEMENTS = 2**20
"""Signals worked on at once: m² of each group."""
_TIE = 2.0**-40
"""Relative: rates nearer than this differ by rounding, and the fewest rollouts are kept."""


def max_signal(
    groups: Sequence[Group],
    num_kept: int,
    *,
    generator: Generator | None = None,
    overhead: Annotated[float, Field(gt=0)] = OVERHEAD,
) -> list[list[int]]:
    """Keep 2 .. `num_kept` rollouts of each group: those of most signal per cost.

    Of each number the subset is that of max-variance. Where several numbers have the same rate, the fewest are kept: so
    two of a group of equal rewards, which teaches nothing.

    Args:
        groups: of any sizes, each of at least two rollouts with finite rewards.
        num_kept: at most so many of each, at least 2; the paper's m.
        generator: not used, the rule draws nothing.
        overhead: what asking and generating a group has cost, in updates of one rollout. Infinite: rows cost nothing,
            and the rule is max-variance.

    Returns:
        For each group its kept places, ascending.

    Raises:
        UsageError: `num_kept` under 2, or `overhead` not above 0; or as of `max_variance`.

    Example:
        >>> from podsrl.types import group_of_rewards
        >>> max_signal([group_of_rewards("rare", [0, 1, 0, 0, 0, 0, 0, 0]), group_of_rewards("none", [0] * 8)], 8)
        [[0, 1, 2, 3, 4], [0, 1]]
    """
    if num_kept < 2:
        raise UsageError(f"num_kept = {num_kept}; wanted at least 2: a single reward has no advantage")
    if not overhead > 0:
        raise UsageError(f"the option overhead of max_signal is {overhead:g}; wanted rows above 0, such as {OVERHEAD}")
    kept: list[list[int]] = [[] for _ in groups]
    for size in sorted({len(group.rollouts) for group in groups}):
        places = [place for place, group in enumerate(groups) if len(group.rollouts) == size]
        rewards = [[rollout.reward for rollout in groups[place].rollouts] for place in places]
        found = _kept(torch.tensor(rewards, dtype=torch.float64), num_kept, overhead)
        for place, chosen in zip(places, found, strict=True):
            kept[place] = chosen
    return kept


def _kept(rewards: Tensor, num_kept: int, overhead: float) -> list[list[int]]:
    """`[P, n]` rewards -> the kept places of each group."""
    most = min(num_kept, rewards.shape[-1])
    if math.isinf(overhead):  # adding a reward never lowers the sum of squares
        return max_variance(rewards, most).tolist()
    blocks = torch.split(rewards, max(1, _BLOCK_ELEMENTS // most**2))
    sizes = torch.cat([_best_sizes(block, most, overhead) for block in blocks])
    kept: list[list[int]] = [[] for _ in rewards]
    for size in sorted({*sizes.tolist()}):
        places = (sizes == size).nonzero().flatten()
        for place, chosen in zip(places.tolist(), max_variance(rewards[places], size).tolist(), strict=True):
            kept[place] = chosen
    return kept


def _best_sizes(rewards: Tensor, most: int, overhead: float) -> Tensor:
    """`[P, n]` rewards -> `[P]` sizes 2 .. `most` of the largest rate; of each size all splits into two ends count."""
    ordered = ordered_rewards(rewards)
    above = ordered - ordered[:, :1]
    is_equal = are_equal(ordered[:, :1], ordered[:, -1:])
    above = above.masked_fill(is_equal, 0.0) / above[:, -1:].masked_fill(is_equal, 1.0)  # no square overflows
    values = torch.nn.functional.pad(above, (1, 0))  # the first 0 makes sums of none
    sums, squares = values.cumsum(-1), values.square().cumsum(-1)
    size = torch.arange(2, most + 1).unsqueeze(-1)
    high = torch.arange(most + 1)  # of the size, those of the high end
    low, rest = (size - high).clamp(min=0), rewards.shape[-1] - high
    total, square = (each[:, low] + (each[:, -1:] - each[:, rest]).unsqueeze(1) for each in (sums, squares))
    signal = torch.where(high <= size, square - total.square() / size, 0.0).amax(-1)
    rate = signal / (size.squeeze(-1) + overhead)
    return 2 + (rate >= rate.amax(-1, keepdim=True) * (1 - _TIE)).int().argmax(-1)  # the first of equal ones
