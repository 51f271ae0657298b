"""Rewards of the kept rollouts become advantages: how much better than its own group each one did.

Goes in: the rewards of the kept subset, never of the whole pool (pool statistics would push the subset up or down as a
whole). Comes out: one advantage a rollout. A group whose rewards are all equal teaches nothing and gets exact zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from podsrl.errors import UsageError, nearest

STD_EPS = 1e-4
"""Added to a standard deviation (the authors' PODS code)."""
MAD_EPS = 1e-3
"""Added to a median absolute deviation (the authors' MC-GRPO code)."""


def group_advantages(rewards: Tensor, normalize: str = "std") -> Tensor:
    """Advantages of groups of equal size, computed in float64.

    Args:
        rewards: [..., m], m ≥ 2 rewards a group in the last dimension; finite.
        normalize: a key of `NORMALIZERS`; "batch_std" reads all groups together as one batch, the others each alone.

    Returns:
        [..., m] in the dtype of `rewards` (float32 for integers and booleans); exactly 0 in a group of equal rewards.

    Raises:
        UsageError: m < 2, a reward that is NaN or infinite, or an unknown `normalize`.

    Example:
        >>> group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0]]), "none")
        tensor([[ 0.5000, -0.5000, -0.5000,  0.5000]])
    """
    if normalize not in NORMALIZERS:
        raise UsageError(f"advantage = {normalize!r} is unknown.{nearest(normalize, NORMALIZERS)}")
    _check_rewards(rewards)
    exact = rewards.to(torch.float64)
    advantages = _zero_where_equal(exact, NORMALIZERS[normalize](exact))
    return advantages.to(rewards.dtype if rewards.is_floating_point() else torch.float32)


def batch_advantages(rewards_P_K: Sequence[Sequence[float]], normalize: str = "std") -> Tensor:
    """Advantages of a whole step, whose groups may have kept different numbers of rollouts.

    Args:
        rewards_P_K: the kept rewards of each group, at least two a group.
        normalize: a key of `NORMALIZERS`; "batch_std" whitens over all groups together, whatever their sizes.

    Returns:
        [B] float32, the groups one after the other.

    Raises:
        UsageError: as `group_advantages`.

    Example:
        >>> batch_advantages([[1.0, 0.0], [3.0, 0.0, 0.0]], "none")
        tensor([ 0.5000, -0.5000,  2.0000, -1.0000, -1.0000])
    """
    within = "none" if normalize == "batch_std" else normalize
    flat = [group_advantages(torch.tensor(group, dtype=torch.float64), within) for group in rewards_P_K]
    advantages = torch.cat(flat) if flat else torch.zeros(0, dtype=torch.float64)
    if normalize == "batch_std" and len(advantages):
        advantages = _over_batch_std(advantages)
    return advantages.to(torch.float32)


def _std(rewards: Tensor) -> Tensor:
    return _centred(rewards) / (rewards.std(-1, correction=1, keepdim=True) + STD_EPS)


def _centred(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(-1, keepdim=True)


def _leave_one_out(rewards: Tensor) -> Tensor:
    """r_i minus the mean of the other m - 1 rewards."""
    m = rewards.shape[-1]
    return _centred(rewards) * (m / (m - 1))


def _median_mad(rewards: Tensor) -> Tensor:
    """Distance to the lower median, in median absolute deviations.

    The published scale, MAD + 1e-3, is 1e-3 as soon as more than half of a group agree: one right answer among wrong
    ones would get an advantage of 1000. The floor of half a standard deviation (ddof 1) bounds it. It stays below MAD
    for bell-shaped rewards (MAD is 0.67 standard deviations there) and takes over where MAD collapses.
    """
    median = rewards.median(-1, keepdim=True).values  # torch takes the lower of the two middle ones
    distance = rewards - median
    mad = distance.abs().median(-1, keepdim=True).values
    floor = rewards.std(-1, correction=1, keepdim=True) / 2
    return distance / (torch.maximum(mad, floor) + MAD_EPS)


def _batch_std(rewards: Tensor) -> Tensor:
    return _over_batch_std(_zero_where_equal(rewards, _centred(rewards)))


def _over_batch_std(centred: Tensor) -> Tensor:
    """Whiten group-centred rewards by one standard deviation over all rows; their mean is 0 already."""
    return centred / (centred.std(correction=1) + STD_EPS)


def _zero_where_equal(rewards: Tensor, advantages: Tensor) -> Tensor:
    """Rounding leaves r - mean a little off zero (three times 0.1, say); equal rewards must give none."""
    equal = rewards.amax(-1, keepdim=True) == rewards.amin(-1, keepdim=True)
    return torch.where(equal, torch.zeros_like(advantages), advantages)


def _check_rewards(rewards: Tensor) -> None:
    size = rewards.shape[-1] if rewards.ndim else 1
    if size < 2:
        raise UsageError(
            f"rewards have {size} a group (shape {tuple(rewards.shape)}); an advantage compares at least 2: "
            f"raise select.num_kept, or leave this group out"
        )
    if not torch.isfinite(rewards).all():
        raise UsageError("rewards hold NaN or inf; drop invalid rollouts before computing advantages")


NORMALIZERS: dict[str, Callable[[Tensor], Tensor]] = {
    "std": _std,  # GRPO, arXiv 2402.03300; ddof 1 and 1e-4 as in PODS, arXiv 2504.13818
    "none": _centred,  # Dr. GRPO, arXiv 2503.20783
    "leave_one_out": _leave_one_out,  # RLOO, arXiv 2402.14740
    "median_mad": _median_mad,  # MC-GRPO, arXiv 2601.22582
    "batch_std": _batch_std,  # REINFORCE++-baseline, arXiv 2501.03262; over rows, where its code weighs rows by length
}
"""How rewards [..., m] float64 become advantages of the same shape."""
