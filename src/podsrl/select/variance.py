"""The max-variance rule: keep the m rollouts whose rewards vary most. docs/selection-proofs.md proves it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

from podsrl.select.base import any_array

_TIE = 2.0**-40
"""Relative to m times a group's range: below it the sign of a step is rounding, and the two subsets count as equal."""

_BLOCK_ELEMENTS = 2**18
"""Rewards worked on at once on a CPU, so that the intermediate arrays stay in its cache."""


@any_array
def max_variance(rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
    """Keep, in every group, a subset of `num_kept` rollouts with the largest variance of rewards.

    It is always the k highest rewards and the m - k lowest, for some k. Where several k reach the largest variance,
    the one nearest m / 2 is taken (of two equally near, the lower). Of equal rewards the earliest positions are kept,
    at both ends. So a group of equal rewards keeps its first m rollouts, and m = 1, where every variance is zero, keeps
    the first of the lowest.

    Args:
        rewards: `[..., n]` torch tensor (any device), numpy array or nested list of finite numbers within ±1e300;
            read as float64, never written to.
        num_kept: the paper's m, 1 .. n. With m = n everything is kept.
        generator: not used, the rule draws nothing.

    Returns:
        `[..., m]` int64 indices of the same kind as `rewards`, ascending within a group.

    Raises:
        UsageError: a reward is NaN, infinite or beyond ±1e300; m < 1 or m > n; lists are ragged or hold no numbers;
            rewards have no dimension.

    Source: PODS (arXiv 2504.13818), Theorem 1: O(n log n) per group.

    Example:
        >>> max_variance([0.0, 1.0, 0.0, 0.0], 2)
        [0, 1]
        >>> max_variance(torch.tensor([[0.0, 0.1, 1.0, 1.2], [0.5, 0.4, 0.3, 0.0]]), 2).tolist()
        [[0, 3], [0, 3]]
    """
    if rewards.device.type != "cpu":
        return _keep_both_ends(rewards, num_kept)
    blocks = torch.split(rewards, max(1, _BLOCK_ELEMENTS // rewards.shape[-1]))
    return torch.cat([_keep_both_ends(block, num_kept) for block in blocks])


def _keep_both_ends(rewards: Tensor, num_kept: int) -> Tensor:
    ordered = ordered_rewards(rewards)
    k = _num_high(ordered, num_kept)
    is_low = is_among_first(rewards, ordered, num_kept - k)
    return indices_of(is_low | _is_high(rewards, ordered, k, is_low), num_kept)


def _is_high(rewards: Tensor, ordered: Tensor, k: Tensor, is_low: Tensor) -> Tensor:
    """Mark the k `[P, 1]` highest of each group, 0 <= k < n: of equal ones the earliest that are not among the lowest.

    What `is_low` marks may be marked too.
    """
    n = rewards.shape[-1]
    edge = torch.where(k > 0, ordered.gather(-1, (n - k).clamp(max=n - 1)), torch.inf)
    is_high = rewards >= edge
    if bool((edge == ordered.gather(-1, n - k - 1)).any()):  # the end cuts through equal rewards
        room = (k - n + torch.searchsorted(ordered, edge, right=True)).int()
        is_edge = (rewards == edge) & ~is_low
        is_high &= ~(is_edge & (is_edge.cumsum(-1, dtype=torch.int32) > room))
    return is_high


def _num_high(ordered: Tensor, num_kept: int) -> Tensor:
    """Find how many of the highest rewards belong to the subset of largest variance: `[P, n]` ascending to k, `[P, 1]`.

    Going from k to k + 1 exchanges the reward a = low[j] for b = high[j], j = m - 1 - k, and changes the variance by
    (b - a) · slope / m², where slope = (m - 1)(a + b) - 2 · (sum of the other m - 1) falls as k grows. So the variance
    rises, stays, then falls, and one prefix sum, of the gaps b - a, gives the direction for every k at once.

    Example: the rewards 0 0 1 2 5 9 with m = 3; columns are j = 0, 1, 2, so k = m - 1 - j goes from 2 to 0.

        low       0    0    1
        high      2    5    9
        gap       2    5    8
        others   14    9    0       16 - low - cumsum(gap): the sum of the other two rewards
        slope   -24   -8   20       2 · (low + high) - 2 · others
        k         2    1    0

    Where slope > 0 the variance rises from k to k + 1: from 0 to 1, so k is at least 1. Where slope < 0 it falls: from
    1 to 2 and from 2 to 3, so k is at most 1. The rule keeps one of the highest and two of the lowest, 0 0 9.
    """
    origin = ordered[:, :1].double()  # a shift changes no variance; it keeps 1e6 + {0, 1} exact
    low = ordered[:, :num_kept] - origin
    high = ordered[:, -num_kept:] - origin
    gap = high - low
    others = high.sum(-1, keepdim=True) - low - gap.cumsum(-1)
    slope = (num_kept - 1) * (low + high) - 2 * others
    noise = (_TIE * num_kept) * high[:, -1:]
    k = torch.arange(num_kept - 1, -1, -1, device=ordered.device)
    at_least = torch.where((slope > noise) & (gap > 0), k + 1, 0).amax(-1, keepdim=True)
    at_most = torch.where((slope < -noise) & (gap > 0), k, num_kept).amin(-1, keepdim=True)
    return torch.full_like(at_least, num_kept // 2).clamp(at_least, at_most)


# Ranks without an argsort. The *order* of a group is its rewards ascending, equal ones by position: the order of a
# stable sort. A rule that keeps the two ends of it needs no permutation: the sorted values tell where the ends begin,
# and comparisons with those values tell which rollouts are inside. Sorting values alone is many times faster than
# sorting them together with their indices.


def ordered_rewards(rewards: Tensor) -> Tensor:
    """Sort each group's rewards, ascending: `[P, n]` to `[P, n]`."""
    if rewards.device.type == "cpu":  # numpy sorts values with vector instructions, torch's CPU sort does not
        return torch.from_numpy(np.sort(rewards.numpy(), axis=-1))
    return rewards.sort(dim=-1).values


def is_among_first(rewards: Tensor, ordered: Tensor, count: Tensor) -> Tensor:
    """Mark the first `count` `[P, 1]` rollouts of each group's order: `[P, n]` bool; `ordered` is sorted already."""
    n = rewards.shape[-1]
    edge = torch.where(count > 0, ordered.gather(-1, (count - 1).clamp(min=0)), -torch.inf)
    beyond = torch.where(count < n, ordered.gather(-1, count.clamp(max=n - 1)), torch.inf)
    inside = rewards <= edge
    if bool((edge == beyond).any()):  # the end cuts through equal rewards: the earliest of them are inside
        room = (count - torch.searchsorted(ordered, edge)).int()
        is_edge = rewards == edge
        inside &= ~(is_edge & (is_edge.cumsum(-1, dtype=torch.int32) > room))
    return inside


def indices_of(is_kept: Tensor, num_kept: int) -> Tensor:
    """Turn a mask `[P, n]` with `num_kept` True in each row into their ascending positions, `[P, m]` int64."""
    num_groups, n = is_kept.shape
    if is_kept.device.type == "cpu":  # numpy's is several times faster than torch's
        flat = torch.from_numpy(np.flatnonzero(is_kept.numpy()))
    else:
        flat = is_kept.flatten().nonzero().squeeze(-1)
    start = torch.arange(num_groups, device=flat.device).unsqueeze(-1) * n
    return flat.view(num_groups, num_kept) - start
