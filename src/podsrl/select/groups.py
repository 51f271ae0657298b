"""Apply a rule to the records of a step: groups in, one `Selection` each out, with a reason for every drop."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from podsrl.errors import UsageError
from podsrl.lib.user_function import FAILURES, reason_of
from podsrl.select.base import SelectionRule
from podsrl.types import DropReason, Group, Selection


def select_groups(
    groups: Sequence[Group], rule: SelectionRule, num_kept: int, *, generator: Generator | None = None
) -> list[Selection]:
    """Choose the rollouts of each group that go to the update.

    Invalid rollouts are never kept. A group with at most `num_kept` valid ones keeps them all; with under two it keeps
    none, for a single reward has no advantage. All groups with the same number of valid rollouts, usually all groups of
    the step, go through the rule in one call, small numbers first.

    Args:
        groups: P groups, of any sizes.
        rule: a rule of `RULES`, or one of your own; called with float64 `[groups, valid]` on the CPU, valid > num_kept.
        num_kept: the paper's m, at least 1.
        generator: handed to the rule; the draws depend on the groups and their order alone.

    Returns:
        One selection for each group, in the same order; kept and dropped partition its rollouts.

    Raises:
        UsageError: `num_kept` < 1; a rollout that counts as valid has no finite reward; or see `call_rule`.

    Example:
        >>> from podsrl.select import max_variance
        >>> select_groups([], max_variance, 16)
        []
    """
    if num_kept < 1:
        raise UsageError(f"num_kept = {num_kept}; wanted at least 1: keep at least one rollout of a group")
    valid_P_G = [_valid_rollouts(group) for group in groups]
    kept_P_K = [valid if len(valid) >= 2 else [] for valid in valid_P_G]
    for members in _groups_by_size(valid_P_G, num_kept):
        rewards = [[groups[p].rollouts[i].reward for i in valid_P_G[p]] for p in members]
        chosen = call_rule(rule, torch.tensor(rewards, dtype=torch.float64), num_kept, generator=generator)
        for p, row in zip(members, chosen.tolist(), strict=True):
            kept_P_K[p] = [valid_P_G[p][i] for i in row]
    return [_selection(*of_group) for of_group in zip(groups, valid_P_G, kept_P_K, strict=True)]


def _valid_rollouts(group: Group) -> list[int]:
    valid = [i for i, rollout in enumerate(group.rollouts) if rollout.is_valid]
    for i in valid:
        if not math.isfinite(group.rollouts[i].reward):
            raise UsageError(
                f"group {group.id!r}, rollout {i}: the reward is {group.rollouts[i].reward} and no reason says why; "
                f"wanted a finite number, or an invalid_reason on the rollout"
            )
    return valid


def _groups_by_size(valid_P_G: list[list[int]], num_kept: int) -> list[list[int]]:
    """The groups that leave the rule a choice, by their number of valid rollouts, ascending: draws have one order."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for p, valid in enumerate(valid_P_G):
        if len(valid) > num_kept:
            by_size[len(valid)].append(p)
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


def _selection(group: Group, valid: list[int], kept: list[int]) -> Selection:
    reason: DropReason = "not_selected" if kept else "group_too_small"
    dropped: dict[int, DropReason] = dict.fromkeys(range(len(group.rollouts)), "invalid")
    dropped.update(dict.fromkeys(valid, reason))
    for i in kept:
        del dropped[i]
    return Selection(group_id=group.id, kept=tuple(kept), dropped=dropped)
