"""Apply a rule to the groups of a step: one `Selection` per group, with a reason for every dropped rollout."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import cast

import torch
from torch import Generator, Tensor

from podsrl.config.bounds import kept_of
from podsrl.errors import UsageError, short
from podsrl.lib.user_function import calling, name_of
from podsrl.select.base import GroupRule, Rule, SelectionRule, reads_groups
from podsrl.select.baselines import keep_all
from podsrl.types import DropReason, Group, Selection, made_up_group


def select_groups(
    groups: Sequence[Group],
    rule: Rule,
    num_kept: float,
    *,
    num_chunks: int = 1,
    generator: Generator | None = None,
    preferences: Sequence[Sequence[float]] | None = None,
) -> list[Selection]:
    """Choose the rollouts of each group that go to the update.

    Invalid rollouts are never kept, and a group with under two valid ones keeps none, for a single reward has no
    advantage. With a rule of rewards a group of at most m valid rollouts keeps them all. All groups with the same m and
    the same number of valid rollouts, usually all groups of the step, go through the rule in one call, small numbers
    first. `keep_all` keeps all valid rollouts of every group, whatever its size.

    A rule of groups decides how many it keeps of each group: two or more. It is called once, or, where groups differ in
    m, once per m, small numbers first.

    With several chunks all of this holds for each chunk alone, as if it were a group: the paper's multi-GPU settings
    (PODS, arXiv 2504.13818) cut 512 rollouts per prompt into four chunks of 128, of which 32 each are kept.

    Args:
        groups: P groups, of any sizes.
        rule: a rule of `RULES`, or one of your own; one of rewards is called with float64 `[groups, valid]` on the CPU,
            valid > m.
        num_kept: m, how many to keep of each group, or of each chunk where there are several; at least 1. A float is
            the share of its rollouts, invalid ones included, as in `podsrl.config.bounds.kept_of`.
        num_chunks: c, how many equal chunks of consecutive rollouts each group is cut into; divides its size.
        generator: handed to the rule; the draws depend on the groups and their order alone.
        preferences: for each rollout of each group a number. The rule sees those with larger numbers first, so that
            one which keeps the first of equal rewards keeps them; None: in the order of the group.

    Returns:
        One selection for each group, in the same order; kept and dropped partition its rollouts.

    Raises:
        UsageError: `num_kept` < 1, or a share that is not below 1; a group that `num_chunks` does not divide; a rollout
            that counts as valid has no finite reward; or the rule raised, or returned anything but the kept indices of
            each group.
    """
    if not (0 < num_kept < 1 if isinstance(num_kept, float) else num_kept >= 1):
        raise UsageError(f"num_kept = {num_kept}; wanted at least 1 rollout of a group, or a share between 0 and 1")
    chunks_P = [_chunks(group, num_chunks) for group in groups]
    pools = [
        _Pool(group, _valid_rollouts(group, chunk, own), kept_of(num_kept, len(chunk)))
        for group, chunks, own in zip(groups, chunks_P, preferences or repeat(None, len(groups)), strict=True)
        for chunk in chunks
    ]
    if reads_groups(rule):
        kept = _by_groups(pools, rule, generator)
    else:
        kept = _by_rewards(pools, cast(SelectionRule, rule), generator)
    of_pools = iter(zip(pools, map(sorted, kept), strict=True))
    return [
        _selection(group, chunks if num_chunks > 1 else (), list(islice(of_pools, len(chunks))))
        for group, chunks in zip(groups, chunks_P, strict=True)
    ]


def try_rule(rule: Rule, num_rollouts: int, num_kept: int) -> None:
    """Call a rule once on made-up rollouts: one that cannot choose `num_kept` of `num_rollouts` fails now.

    `num_rollouts` (at least 2) is the size of the group or chunk. UsageError: as `select_groups`.
    """
    generator = torch.Generator().manual_seed(0)
    if reads_groups(rule):
        select_groups([made_up_group("made-up", num_rollouts)], rule, num_kept, generator=generator)
    else:
        rewards = torch.linspace(0, 1, num_rollouts, dtype=torch.float64).reshape(1, -1)
        call_rule(cast(SelectionRule, rule), rewards, num_kept, generator=generator)


@dataclass(frozen=True, slots=True)
class _Pool:
    """The rollouts among which a rule chooses: the valid ones of a group, or of one of its chunks, in its order."""

    group: Group
    valid: list[int]
    num_kept: int


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


def _valid_rollouts(group: Group, chunk: Sequence[int], preference: Sequence[float] | None) -> list[int]:
    valid = [i for i in chunk if group.rollouts[i].is_valid]
    if preference is not None:
        valid.sort(key=preference.__getitem__, reverse=True)  # which leaves equal ones in their order
    for i in valid:
        if not math.isfinite(group.rollouts[i].reward):
            raise UsageError(
                f"group {group.id!r}, rollout {i}: the reward is {group.rollouts[i].reward} and no reason says why; "
                f"wanted a finite number, or an invalid_reason on the rollout"
            )
    return valid


def _by_rewards(pools: Sequence[_Pool], rule: SelectionRule, generator: Generator | None) -> list[list[int]]:
    """What a reward rule keeps of each pool. It is called for pools that leave it a choice, once per number of valid
    rollouts and m, ascending: draws have one order."""
    kept = [pool.valid if len(pool.valid) >= 2 else [] for pool in pools]
    if rule is keep_all:
        return kept
    by_size: dict[tuple[int, int], list[int]] = defaultdict(list)
    for p, pool in enumerate(pools):
        if len(pool.valid) > pool.num_kept:
            by_size[len(pool.valid), pool.num_kept].append(p)
    for size, num_kept in sorted(by_size):
        members = by_size[size, num_kept]
        rewards = [[pools[p].group.rollouts[i].reward for i in pools[p].valid] for p in members]
        chosen = call_rule(rule, torch.tensor(rewards, dtype=torch.float64), num_kept, generator=generator)
        for p, row in zip(members, chosen.tolist(), strict=True):
            kept[p] = [pools[p].valid[i] for i in row]
    return kept


def _by_groups(pools: Sequence[_Pool], rule: GroupRule, generator: Generator | None) -> list[list[int]]:
    """What a group rule keeps of each pool; it is called with the pools of two valid rollouts or more, once per m."""
    by_kept: dict[int, list[int]] = defaultdict(list)
    for p, pool in enumerate(pools):
        if len(pool.valid) >= 2:
            by_kept[pool.num_kept].append(p)
    kept: list[list[int]] = [[] for _ in pools]
    for num_kept in sorted(by_kept):
        members = by_kept[num_kept]
        chosen = _of_groups([pools[p] for p in members], rule, num_kept, generator)
        for p, of_group in zip(members, chosen, strict=True):
            kept[p] = of_group
    return kept


def _of_groups(pools: Sequence[_Pool], rule: GroupRule, num_kept: int, generator: Generator | None) -> list[list[int]]:
    """What one call of a group rule keeps of each pool."""
    groups = tuple(replace(pool.group, rollouts=tuple(pool.group.rollouts[i] for i in pool.valid)) for pool in pools)
    answer = _call(rule, groups, num_kept, generator)
    with calling(f"the answer of the selection rule {name_of(rule)!r}"):
        if not isinstance(answer, Sequence) or len(answer) != len(groups):
            got = f"{len(answer)} answers" if isinstance(answer, Sequence) else f"a {type(answer).__name__}"
            raise UsageError(
                f"the selection rule {name_of(rule)!r} returned {got}; wanted a list of {len(groups)}: "
                "the kept indices of each group"
            )
        return [
            [pool.valid[i] for i in _checked_indices(of_group, name_of(rule), group)]
            for pool, group, of_group in zip(pools, groups, answer, strict=True)
        ]


def _checked_indices(answer: object, name: str, group: Group) -> list[int]:
    """The kept indices of one group, ascending."""
    wanted = f"wanted at least 2 distinct indices 0 .. {len(group.rollouts) - 1}"
    given = answer.kept if isinstance(answer, Selection) else answer
    what = f"the selection rule {name!r} returned {short(given)} for group {group.id!r}"
    if not isinstance(given, Iterable):
        raise UsageError(f"{what}; {wanted}")
    found = list(given)
    try:
        if any(isinstance(i, bool) for i in found):
            raise TypeError("a mask, where indices are wanted")
        indices = sorted(operator.index(i) for i in found)
    except TypeError as error:
        raise UsageError(f"{what}; {wanted}") from error
    is_good = len(indices) >= 2 and len(set(indices)) == len(indices)
    if not is_good or indices[0] < 0 or indices[-1] >= len(group.rollouts):
        raise UsageError(f"{what}; {wanted}")
    return indices


def call_rule(rule: SelectionRule, rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
    """Call a rule that may be a user's own on `[P, n]` rewards: `[P, m]`, ascending within a group.

    Raises:
        UsageError: the rule raised, or its answer is not `num_kept` distinct indices of each group.
    """
    answer = _call(rule, rewards, num_kept, generator)
    with calling(f"the answer of the selection rule {name_of(rule)!r}"):
        return _checked_answer(answer, name_of(rule), len(rewards), rewards.shape[1], num_kept)


def _call(rule: Rule, what: Tensor | Sequence[Group], num_kept: int, generator: Generator | None) -> object:
    form = "groups" if reads_groups(rule) else "rewards"
    with calling(f"the selection rule {name_of(rule)!r}", f"f({form}, num_kept, *, generator)"):
        return cast(Callable[..., object], rule)(what, num_kept, generator=generator)


def _checked_answer(answer: object, name: str, num_groups: int, size: int, num_kept: int) -> Tensor:
    """A repeated or wild index would train on the wrong rollouts without a message."""
    wanted = f"wanted [{num_groups}, {num_kept}] int64, distinct indices 0 .. {size - 1} in each row"
    try:
        indices = torch.as_tensor(answer).to("cpu").to_dense()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
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
        i: "pruned" if rollout.is_pruned else "invalid" for i, rollout in enumerate(group.rollouts)
    }
    for pool, kept in chosen:
        dropped.update(dict.fromkeys(pool.valid, "not_selected" if kept else "group_too_small"))
        for i in kept:
            del dropped[i]
    everything = tuple(i for _, kept in chosen for i in kept)
    return Selection(group_id=group.id, kept=everything, dropped=dropped, chunks=chunks)
