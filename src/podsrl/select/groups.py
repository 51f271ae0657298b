"""Apply a rule to the groups of a step: one `Selection` per group, with a reason for every dropped rollout."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Generator, Tensor

from podsrl.errors import UsageError
from podsrl.lib.user_function import FAILURES, reason_of
from podsrl.select.base import SelectionRule
from podsrl.types import DropReason, Group, Selection


def select_groups(
    groups: Sequence[Group],
    rule: SelectionRule,
    num_kept: int,
    *,
    num_chunks: int = 1,
    generator: Generator | None = None,
) -> list[Selection]:
    """Choose the rollouts of each group that go to the update.

    Invalid rollouts are never kept. A group with at most `num_kept` valid ones keeps them all; with under two it keeps
    none, for a single reward has no advantage. All groups with the same number of valid rollouts, usually all groups of
    the step, go through the rule in one call, small numbers first.

    With several chunks all of this holds for each chunk alone, as if it were a group: the paper's multi-GPU settings
    (PODS, arXiv 2504.13818) cut 512 rollouts per prompt into four chunks of 128, of which 32 each are kept.

    Args:
        groups: P groups, of any sizes.
        rule: a rule of `RULES`, or one of your own; called with float64 `[groups, valid]` on the CPU, valid > num_kept.
        num_kept: how many to keep of each group, or of each chunk where there are several; at least 1.
        num_chunks: c, how many equal chunks of consecutive rollouts each group is cut into; divides its size.
        generator: handed to the rule; the draws depend on the groups and their order alone.

    Returns:
        One selection for each group, in the same order; kept and dropped partition its rollouts.

    Raises:
        UsageError: `num_kept` < 1; a group that `num_chunks` does not divide; a rollout that counts as valid has no
            finite reward; or see `call_rule`.

    Example:
        >>> from podsrl.select import max_variance
        >>> select_groups([], max_variance, 16)
        []
    """
    if num_kept < 1:
        raise UsageError(f"num_kept = {num_kept}; wanted at least 1: keep at least one rollout of a group")
    chunks_P = [_chunks(group, num_chunks) for group in groups]
    pools = [
        _Pool(group, _valid_rollouts(group, chunk))
        for group, chunks in zip(groups, chunks_P, strict=True)
        for chunk in chunks
    ]
    kept = [pool.valid if len(pool.valid) >= 2 else [] for pool in pools]
    for members in _pools_by_size(pools, num_kept):
        rewards = [[pools[p].group.rollouts[i].reward for i in pools[p].valid] for p in members]
        chosen = call_rule(rule, torch.tensor(rewards, dtype=torch.float64), num_kept, generator=generator)
        for p, row in zip(members, chosen.tolist(), strict=True):
            kept[p] = [pools[p].valid[i] for i in row]
    of_pools = iter(zip(pools, kept, strict=True))
    return [
        _selection(group, chunks if num_chunks > 1 else (), list(islice(of_pools, len(chunks))))
        for group, chunks in zip(groups, chunks_P, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Pool:
    """The rollouts among which a rule chooses: the valid ones of a group, or of one of its chunks."""

    group: Group
    valid: list[int]


def _chunks(group: Group, num_chunks: int) -> tuple[tuple[int, ...], ...]:
    """Equal stretches of the group's rollouts: 6 rollouts with num_chunks = 3 are (0, 1), (2, 3) and (4, 5)."""
    everything = range(len(group.rollouts))
    if num_chunks == 1:
        return (tuple(everything),)
    size, rest = divmod(len(everything), num_chunks)
    if rest or size == 0:
        raise UsageError(
            f"select.num_chunks = {num_chunks} does not divide the {len(everything)} rollouts of group {group.id!r} "
            "into equal chunks; choose a divisor"
        )
    return tuple(tuple(everything[start : start + size]) for start in range(0, len(everything), size))


def _valid_rollouts(group: Group, chunk: Sequence[int]) -> list[int]:
    valid = [i for i in chunk if group.rollouts[i].is_valid]
    for i in valid:
        if not math.isfinite(group.rollouts[i].reward):
            raise UsageError(
                f"group {group.id!r}, rollout {i}: the reward is {group.rollouts[i].reward} and no reason says why; "
                f"wanted a finite number, or an invalid_reason on the rollout"
            )
    return valid


def _pools_by_size(pools: Sequence[_Pool], num_kept: int) -> list[list[int]]:
    """The pools that leave the rule a choice, by their number of valid rollouts, ascending: draws have one order."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for p, pool in enumerate(pools):
        if len(pool.valid) > num_kept:
            by_size[len(pool.valid)].append(p)
    return [by_size[size] for size in sorted(by_size)]


def call_rule(rule: SelectionRule, rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
    """Call a rule that may be a user's own, and check its answer.

    Args:
        rule, rewards, num_kept, generator: as in `SelectionRule`; `rewards` is `[P, n]`.

    Returns:
        `[P, m]`, ascending within a group.

    Raises:
        UsageError: the rule raised, or its answer is not `num_kept` distinct indices of each group.
    """
    name = getattr(rule, "__name__", type(rule).__name__)
    try:
        answer = rule(rewards, num_kept, generator=generator)
    except UsageError:
        raise
    except FAILURES as error:
        raise UsageError(f"the selection rule {name!r} raised {reason_of(error)}") from error
    return _checked_answer(answer, name, len(rewards), rewards.shape[1], num_kept)


def _checked_answer(answer: object, name: str, num_groups: int, size: int, num_kept: int) -> Tensor:
    """Trust no rule: a duplicate or a wild index would train on the wrong rollouts without a word."""
    wanted = f"wanted [{num_groups}, {num_kept}] int64, distinct indices 0 .. {size - 1} in each row"
    try:
        indices = torch.as_tensor(answer)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"the selection rule {name!r} returned a {type(answer).__name__}; {wanted}") from error
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise UsageError(f"the selection rule {name!r} returned {indices.dtype}; {wanted}")
    if indices.shape != (num_groups, num_kept):
        raise UsageError(f"the selection rule {name!r} returned the shape {list(indices.shape)}; {wanted}")
    indices = indices.sort(dim=-1).values
    is_wild = ((indices < 0) | (indices >= size)).any(-1)
    is_repeated = (indices.diff(dim=-1) == 0).any(-1)
    for row in (is_wild | is_repeated).nonzero().flatten().tolist()[:1]:
        raise UsageError(f"the selection rule {name!r} returned {indices[row].tolist()} for one group; {wanted}")
    return indices


def _selection(
    group: Group, chunks: tuple[tuple[int, ...], ...], chosen: Sequence[tuple[_Pool, list[int]]]
) -> Selection:
    """One group's, from what was kept of each of its pools."""
    dropped: dict[int, DropReason] = {
        i: "pruned" if rollout.completion.finish_reason == "pruned" else "invalid"
        for i, rollout in enumerate(group.rollouts)
    }
    for pool, kept in chosen:
        dropped.update(dict.fromkeys(pool.valid, "not_selected" if kept else "group_too_small"))
        for i in kept:
            del dropped[i]
    everything = tuple(i for _, kept in chosen for i in kept)
    return Selection(group_id=group.id, kept=everything, dropped=dropped, chunks=chunks)
