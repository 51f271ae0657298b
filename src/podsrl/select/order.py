"""Ranks of rewards without an argsort.

The *order* of a group is its rewards ascending, equal ones by position: the order of a stable sort. A rule that keeps
the two ends of it needs no permutation: the sorted values tell where the ends begin, comparisons with those values tell
who is inside. Sorting values alone is many times faster than sorting them together with their indices.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def ordered_rewards(rewards: Tensor) -> Tensor:
    """Sort each group's rewards, ascending: `[P, n]` to `[P, n]`."""
    if rewards.device.type == "cpu":  # numpy sorts values with vector instructions, torch's CPU sort does not
        return torch.from_numpy(np.sort(rewards.numpy(), axis=-1))
    return rewards.sort(dim=-1).values


def is_among_first(rewards: Tensor, ordered: Tensor, count: Tensor) -> Tensor:
    """Mark the first `count` rollouts of each group's order.

    Args:
        rewards: `[P, n]`, finite.
        ordered: `[P, n]`, `ordered_rewards(rewards)`.
        count: `[P, 1]` int64, 0 .. n.

    Returns:
        `[P, n]` bool with exactly `count` True in each row.
    """
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
