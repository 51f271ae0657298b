"""What a rule is: a plain function from rewards, or from groups, to the indices of the rollouts worth an update.

`any_array` lets a rule on tensors `[P, n]` take any kind of array, checks it, and answers with the same kind. The rule
itself then sees one kind only: a float32 or float64 tensor of finite rewards, with 1 <= m < n.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Collection, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, cast, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from podsrl.errors import UsageError
from podsrl.types import Group, Selection

NestedFloats: TypeAlias = "Sequence[float] | Sequence[NestedFloats]"
NestedInts: TypeAlias = "list[int] | list[NestedInts]"


class SelectionRule(Protocol):
    """A rule that goes by rewards alone; `select.rule = "module:function"` names one of your own."""

    def __call__(self, rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor:
        """Choose `num_kept` rollouts of every group.

        Args:
            rewards: `[P, n]` float, finite; never written to.
            num_kept: the paper's m, 1 .. n.
            generator: source of every random draw; a rule that draws nothing leaves it alone.

        Returns:
            `[P, m]` int64 on the device of `rewards`: distinct indices 0 .. n-1, ascending within a group.
        """
        ...


class GroupRule(Protocol):
    """A rule that goes by more than rewards: lengths, log-probs, texts; or that compares groups."""

    def __call__(
        self, groups: Sequence[Group], num_kept: int, *, generator: Generator | None = None
    ) -> Sequence[Collection[int] | Selection]:
        """Choose rollouts of every group. Further keyword-only parameters are options: see `select.options`.

        Args:
            groups: all groups of the step that have two valid rollouts; each holds its valid rollouts alone. With
                several chunks each chunk is such a group.
            num_kept: the paper's m, 1 or more. The rule may keep another number.
            generator: source of every random draw.

        Returns:
            For each group the indices of the kept rollouts in `Group.rollouts`, distinct, in any order, at least 2; or
            a `Selection` whose `kept` holds them.
        """
        ...


Rule: TypeAlias = SelectionRule | GroupRule
"""Told apart by the name of the first parameter: a rule whose first parameter is `groups` is a `GroupRule`."""


def reads_groups(rule: Rule) -> TypeGuard[GroupRule]:
    """Whether a rule goes by groups."""
    try:
        return next(iter(inspect.signature(rule).parameters), None) == "groups"
    except (TypeError, ValueError):  # some functions written in C
        return False


class ArrayRule(Protocol):
    """A rule that also takes numpy arrays and nested lists `[..., n]` and answers with the same kind `[..., m]`."""

    @overload
    def __call__(self, rewards: Tensor, num_kept: int, *, generator: Generator | None = None) -> Tensor: ...
    @overload
    def __call__(
        self, rewards: NDArray[Any], num_kept: int, *, generator: Generator | None = None
    ) -> NDArray[np.int64]: ...
    @overload
    def __call__(self, rewards: Sequence[float], num_kept: int, *, generator: Generator | None = None) -> list[int]: ...
    @overload
    def __call__(
        self, rewards: Sequence[NestedFloats], num_kept: int, *, generator: Generator | None = None
    ) -> list[NestedInts]: ...


LIMIT = 1e300
"""Largest magnitude of a reward: sums over a group then stay finite in float64."""


def any_array(rule: SelectionRule) -> ArrayRule:
    """Let a rule on tensors `[P, n]` take tensors, numpy arrays and nested lists `[..., n]`, checked.

    The rule is called with 1 <= m < n and finite rewards only. With m = n every group keeps 0 .. n-1.
    """

    @functools.wraps(rule)
    def checked_rule(rewards: object, num_kept: int, *, generator: Generator | None = None) -> object:
        values = _as_tensor(rewards)
        _check_finite(values)
        num_rollouts = values.shape[-1]
        num_kept = _checked_count(num_kept, num_rollouts)
        groups = values.reshape(math.prod(values.shape[:-1]), num_rollouts)
        if num_kept == num_rollouts:
            kept = torch.arange(num_kept, device=values.device).repeat(len(groups), 1)
        else:
            kept = rule(groups, num_kept, generator=generator)
        kept = kept.reshape(*values.shape[:-1], num_kept)
        if isinstance(rewards, Tensor):
            return kept
        return kept.tolist() if isinstance(rewards, Sequence) else kept.numpy()

    return cast(ArrayRule, checked_rule)


def _as_tensor(rewards: object) -> Tensor:
    """Float32 where that holds every value, else float64; shares memory with `rewards` where it can."""
    if isinstance(rewards, Tensor):
        if rewards.is_complex():
            raise UsageError(f"rewards are {rewards.dtype}; wanted real numbers: pass their real part")
        is_narrow = rewards.is_floating_point() and rewards.element_size() <= 4
        values = rewards.detach().to(torch.float32 if is_narrow else torch.float64)
    else:
        array = _as_numpy(rewards)
        is_narrow = array.dtype.kind == "f" and array.dtype.itemsize <= 4
        values = torch.from_numpy(np.require(array, np.float32 if is_narrow else np.float64, ["C", "W"]))
    if values.ndim == 0:
        raise UsageError("rewards are a single number; wanted [..., n], one reward per rollout: pass a list of them")
    return values


def _as_numpy(rewards: object) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        array = np.asarray(rewards)
    except ValueError as error:
        raise UsageError(
            "rewards are a ragged list; wanted the same number of rollouts in every group [..., n]: "
            "select each size by itself, or pass records to podsrl.select.groups.select_groups"
        ) from error
    if array.dtype.kind not in "fiub":
        raise UsageError(f"rewards hold {array.dtype}; wanted real numbers: convert them to float first")
    return array


def _check_finite(values: Tensor) -> None:
    if values.numel() == 0:
        return
    low, high = (float(end) for end in values.aminmax())
    if low >= -LIMIT and high <= LIMIT:  # false for NaN too
        return
    bad = ~(values.double().abs() <= LIMIT)
    *group, rollout = bad.nonzero()[0].tolist()
    where = f" of group {', '.join(map(str, group))}" if group else ""
    raise UsageError(
        f"the reward of rollout {rollout}{where} is {float(values[(*group, rollout)])}; wanted a finite number "
        f"within ±{LIMIT:g}: fix the reward function, or mark the rollout invalid: select_groups leaves it out"
    )


def _checked_count(num_kept: int, num_rollouts: int) -> int:
    try:
        count = operator.index(num_kept)
    except TypeError:
        raise UsageError(f"num_kept is {num_kept!r}; wanted a whole number: pass an int") from None
    if count < 1:
        raise UsageError(f"num_kept = {count}; wanted 1 .. {num_rollouts}: keep at least one rollout of a group")
    if count > num_rollouts:
        raise UsageError(
            f"num_kept = {count} is more than the {num_rollouts} rollouts of a group; "
            f"lower num_kept (select.num_kept) or generate more (rollouts.num_rollouts)"
        )
    return count
