"""The rules that max-variance is compared with. Arguments, results and errors are those of `max_variance`.

Where equal rewards must be told apart, a rule goes by the order of a stable ascending sort.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from podsrl.errors import UsageError
from podsrl.select.base import any_array
from podsrl.select.variance import indices_of, is_among_first, ordered_rewards


@any_array
def max_reward(rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
    """Keep the `num_kept` highest rewards; of equal ones the latest positions.

    Source: PODS (arXiv 2504.13818), the baseline "max-reward".

    Example:
        >>> max_reward([0.0, 1.0, 0.2, 0.5], 2)
        [1, 3]
    """
    ordered = ordered_rewards(rewards)
    num_dropped = torch.full((len(rewards), 1), rewards.shape[-1] - num_kept, device=rewards.device)
    return indices_of(~is_among_first(rewards, ordered, num_dropped), num_kept)


@any_array
def both_ends(rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
    """Keep the ⌊m/2⌋ highest and the ⌈m/2⌉ lowest; of equal rewards the latest high ones and the earliest low ones.

    Max-variance chooses how many of each it keeps; here they are as many, whatever that does to the variance.
    Source: Sol-RL (arXiv 2604.06916), the 12 best and the 12 worst of 96. Pairs of the highest with the lowest rank,
    the second highest with the second lowest and so on are the same set.

    Example:
        >>> both_ends([0.0, 1.0, 0.2, 0.9, 0.8, 0.7], 4)
        [0, 1, 2, 3]
    """
    order = rewards.argsort(dim=-1, stable=True)
    low = num_kept - num_kept // 2
    ends = order[:, :low], order[:, rewards.shape[-1] - num_kept // 2 :]
    return torch.cat(ends, dim=-1).sort(dim=-1).values


@any_array
def random(rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
    """Keep a uniformly random subset of `num_kept` rollouts, without replacement.

    The draws, n per group in the groups' order, are on the generator's device; None: torch's default generator of the
    rewards' device. With m = n nothing is drawn.

    Raises:
        UsageError: `generator` is no `torch.Generator`; else as `max_variance`.
    Source: PODS (arXiv 2504.13818), the baseline "random".

    Example:
        >>> len(random([0.0, 1.0, 0.2, 0.5], 2, generator=torch.Generator().manual_seed(0)))
        2
    """
    if not isinstance(generator, Generator | None):
        raise UsageError(
            f"generator is a {type(generator).__name__}; wanted torch.Generator().manual_seed(seed) or None"
        )
    device = rewards.device if generator is None else generator.device
    keys = torch.rand(rewards.shape, generator=generator, device=device, dtype=torch.float64)
    return keys.topk(num_kept, sorted=False).indices.sort(dim=-1).values.to(rewards.device)


@any_array
def percentile(rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
    """Keep the rollouts at the (i - ½) / m quantiles of the rewards, i = 1 .. m: an even sample of their distribution.

    These are the ranks ⌊(i - ½) · n / m⌋, counted from 0, in the stable ascending order; n >= m makes them distinct.
    Source: named beside PODS (arXiv 2504.13818) without a published definition; these quantiles are our reading of it.

    Example:
        >>> percentile([0.7, 0.0, 0.1, 0.6, 0.2, 0.5, 0.3, 0.4], 2)
        [3, 4]
    """
    ranks = (2 * torch.arange(num_kept, device=rewards.device) + 1) * rewards.shape[-1] // (2 * num_kept)
    return rewards.argsort(dim=-1, stable=True)[:, ranks].sort(dim=-1).values


@any_array
def keep_all(rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
    """Keep every rollout: plain GRPO. It wants `num_kept` = n, so that a smaller number is never ignored.

    `select_groups` keeps all valid rollouts of every group with it, whatever the groups' sizes. UsageError: `num_kept`
    is not n.

    Example:
        >>> keep_all([0.0, 1.0, 0.2], 3)
        [0, 1, 2]
    """
    n = rewards.shape[-1]
    raise UsageError(
        f"the rule keep_all got num_kept = {num_kept} of {n} rollouts; wanted num_kept = {n}: "
        f"set it so, or choose a rule that drops some, such as max_variance"
    )
