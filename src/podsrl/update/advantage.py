"""Advantages: how much better each kept rollout did than the others of its group.

They are computed from the rewards of the kept rollouts alone. Statistics of the whole pool would push the kept subset
up or down as a whole. A group whose kept rewards are all equal teaches nothing: the advantages of this module are
exactly 0 there. Rewards that differ by rounding alone are equal (`podsrl.lib.rounding`).

An advantage is a plain function in one of two forms, told apart by the name of its first parameter:

    f(rewards)              float64 [..., m], one group in the last dimension -> the same shape
    f(groups, selections)   all groups of the step -> one tensor [m] or [m, T] per group

The second form may read everything that a group holds (lengths, texts, log-probs) and may compare groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import TypeAlias, cast

import torch
from torch import Tensor

from podsrl.errors import UsageError, nearest
from podsrl.lib.options import parameters_of
from podsrl.lib.resolve import Table, resolve
from podsrl.lib.rounding import are_equal
from podsrl.lib.user_function import calling, check_arguments, name_of
from podsrl.types import Group, Selection, made_up_group

RewardAdvantage: TypeAlias = Callable[[Tensor], Tensor]
"""Rewards [..., m] float64 -> advantages of the same shape; called once per group, or per chunk of a group."""
GroupAdvantage: TypeAlias = Callable[[Sequence[Group], Sequence[Selection]], Sequence[Tensor]]
"""All groups of a step and what was kept of each -> one tensor [m] or [m, T] per group, in the order of `kept`.

[m, T] holds one value per token; T is at least the longest kept completion of the group, and what stands behind a
completion's end is not read. A group of which nothing was kept gets a tensor [0]."""
Advantage: TypeAlias = RewardAdvantage | GroupAdvantage
"""Told apart by the name of the first parameter, `rewards` or `groups`."""

STD_EPS = 1e-4
"""Added to a standard deviation (the authors' PODS code)."""
MAD_EPS = 1e-3
"""Added to a median absolute deviation (the authors' MC-GRPO code)."""


def group_advantages(rewards: Tensor, normalize: str | RewardAdvantage = "std") -> Tensor:
    """Advantages of groups of equal size, computed in float64.

    Args:
        rewards: [..., m], one group of m ≥ 2 rewards in the last dimension; finite.
        normalize: a key of `NORMALIZERS`, or a function of rewards. "batch_std" reads all groups of `rewards`
            together, the other names each group alone.

    Returns:
        [..., m] in the dtype of `rewards` (float32 for integers and booleans); exactly 0 in a group of equal rewards
        for the known names.

    Raises:
        UsageError: m < 2, a reward that is NaN or infinite, an unknown name, or a function that fails.

    Example:
        >>> group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0]]), "none")
        tensor([[ 0.5000, -0.5000, -0.5000,  0.5000]])
    """
    if isinstance(normalize, str) and normalize not in NORMALIZERS:
        raise UsageError(f"advantage = {normalize!r} is unknown.{nearest(normalize, NORMALIZERS)}")
    function = NORMALIZERS[normalize] if isinstance(normalize, str) else normalize
    _check_rewards(rewards)
    advantages = _of_rewards(function, rewards.to(torch.float64))
    return advantages.to(rewards.dtype if rewards.is_floating_point() else torch.float32)


def step_advantages(groups: Sequence[Group], selections: Sequence[Selection], advantage: Advantage) -> list[Tensor]:
    """Advantages of all kept rollouts of a step.

    Args:
        groups: P groups, of any sizes.
        selections: what was kept of each; rewards are normalised within each chunk of a selection.
        advantage: a function of `ADVANTAGES`, or one in either form of this module.

    Returns:
        One float32 tensor [m] or [m, T] per group, in the order of `kept`; m = 0 where nothing was kept.

    Raises:
        UsageError: a group or chunk with a single reward, a reward that is NaN or infinite; or the function raised, or
            did not return what its form wants.
    """
    if reads_groups(advantage):
        answer = _call(advantage, tuple(groups), tuple(selections))
        return checked_advantages(_titled(advantage), answer, groups, selections)
    function = cast(RewardAdvantage, advantage)
    return [found.to(torch.float32) for found in _by_chunk(groups, selections, function)]


def kept_by_chunk(selection: Selection) -> list[list[int]]:
    """Which of the kept rollouts belong to each chunk that kept any, as places in `kept`.

    Example:
        >>> chosen = Selection(group_id="q", kept=(0, 2, 3), dropped={1: "not_selected"}, chunks=((0, 1), (2, 3)))
        >>> kept_by_chunk(chosen)
        [[0], [1, 2]]
    """
    place = {rollout: k for k, rollout in enumerate(selection.kept)}
    chunks = selection.chunks or (selection.kept,)
    return [places for chunk in chunks if (places := [place[i] for i in chunk if i in place])]


def _by_chunk(groups: Sequence[Group], selections: Sequence[Selection], advantage: RewardAdvantage) -> list[Tensor]:
    """One float64 tensor [m] per group: the function of each chunk's kept rewards."""
    found = []
    for group, selection in zip(groups, selections, strict=True):
        rewards = torch.tensor([group.rollouts[i].reward for i in selection.kept], dtype=torch.float64)
        advantages = torch.zeros_like(rewards)
        for places in kept_by_chunk(selection):
            of_chunk = rewards[places]
            _check_rewards(of_chunk)
            advantages[places] = _of_rewards(advantage, of_chunk)
        found.append(advantages)
    return found


def std(rewards: Tensor) -> Tensor:
    """GRPO's, arXiv 2402.03300; ddof 1 and 1e-4 as in PODS, arXiv 2504.13818."""
    return _zero_where_equal(rewards, _centred(rewards) / (rewards.std(-1, correction=1, keepdim=True) + STD_EPS))


def none(rewards: Tensor) -> Tensor:
    """Dr. GRPO's, arXiv 2503.20783: rewards minus their mean."""
    return _zero_where_equal(rewards, _centred(rewards))


def leave_one_out(rewards: Tensor) -> Tensor:
    """RLOO's, arXiv 2402.14740: r_i minus the mean of the other m - 1 rewards."""
    m = rewards.shape[-1]
    return _zero_where_equal(rewards, _centred(rewards) * (m / (m - 1)))


def median_mad(rewards: Tensor) -> Tensor:
    """MC-GRPO's, arXiv 2601.22582: the distance to the lower median, in median absolute deviations.

    The published scale, MAD + 1e-3, is 1e-3 as soon as more than half of a group agree: one right answer among wrong
    ones would get an advantage of 1000. The floor of half a standard deviation (ddof 1) bounds it. It stays below MAD
    for bell-shaped rewards (MAD is 0.67 standard deviations there) and takes over where MAD collapses.
    """
    median = rewards.median(-1, keepdim=True).values  # torch takes the lower of the two middle ones
    distance = rewards - median
    mad = distance.abs().median(-1, keepdim=True).values
    floor = rewards.std(-1, correction=1, keepdim=True) / 2
    return _zero_where_equal(rewards, distance / (torch.maximum(mad, floor) + MAD_EPS))


def batch_std(rewards: Tensor) -> Tensor:
    """REINFORCE++-baseline's, arXiv 2501.03262; over rows, where its code weighs rows by length."""
    return _zero_where_equal(rewards, _whitened(none(rewards)))


def batch_std_of_step(groups: Sequence[Group], selections: Sequence[Selection]) -> list[Tensor]:
    """Rewards centred within each group, then whitened over all kept rollouts of the step."""
    centred = _by_chunk(groups, selections, none)
    whole = torch.cat(centred) if centred else torch.zeros(0, dtype=torch.float64)
    return list(torch.split(_whitened(whole) if len(whole) else whole, [len(each) for each in centred]))


def _centred(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(-1, keepdim=True)


def _whitened(centred: Tensor) -> Tensor:
    """Group-centred rewards divided by one standard deviation over all of them; their mean is 0 already."""
    return centred / (centred.std(correction=1) + STD_EPS)


def _zero_where_equal(rewards: Tensor, advantages: Tensor) -> Tensor:
    """Rounding leaves r - mean a little off zero (three times 0.1, say); equal rewards must give none."""
    equal = are_equal(rewards.amin(-1, keepdim=True), rewards.amax(-1, keepdim=True))
    return torch.where(equal, torch.zeros_like(advantages), advantages)


NORMALIZERS: Table[RewardAdvantage] = Table(
    {name: f"podsrl.update.advantage:{name}" for name in ("std", "none", "leave_one_out", "median_mad", "batch_std")}
)
"""Name -> advantage of rewards [..., m]; "batch_std" whitens over all groups of the tensor that it is given."""

ADVANTAGES: Table[Advantage] = Table({**NORMALIZERS.places, "batch_std": "podsrl.update.advantage:batch_std_of_step"})
"""Name -> advantage of a step; "batch_std" whitens over all groups of the step."""


def resolve_advantage(name: str) -> Advantage:
    """The advantage that `loss.advantage` names: one of `ADVANTAGES`, or a function of the user's own.

    Raises:
        UsageError: no such name, module or function; or a function in neither of the two forms.
    """
    wanted = "a function f(rewards) or f(groups, selections)"
    advantage = resolve(name, ADVANTAGES, option="loss.advantage", kind="advantage", wanted=wanted)
    if name not in ADVANTAGES:
        arguments = _parameters(advantage, where := f"loss.advantage = {name!r}")
        if arguments != (["groups", "selections"] if arguments[:1] == ["groups"] else ["rewards"]):
            raise UsageError(f"{where} takes ({', '.join(arguments)}); wanted {wanted}, with these names")
        check_arguments(cast(Callable[..., object], advantage), len(arguments), where=where, wanted=wanted)
    return advantage


def reads_groups(advantage: Advantage) -> bool:
    """Whether an advantage has the form f(groups, selections)."""
    return _parameters(advantage, f"the advantage {name_of(advantage)!r}")[:1] == ["groups"]


def try_advantage(advantage: Advantage, num_kept: int) -> tuple[list[Group], list[Selection], list[Tensor]]:
    """Call an advantage once, on two made-up groups of which `num_kept` ≥ 2 rollouts are kept.

    Returns:
        The groups, what was kept of them, and their advantages, for what comes after.

    Raises:
        UsageError: as `step_advantages`. A function that fails here would fail after the first rollouts.
    """
    groups = [made_up_group(name, num_kept) for name in ("first", "second")]
    selections = [Selection(group_id=group.id, kept=tuple(range(num_kept)), dropped={}) for group in groups]
    return groups, selections, step_advantages(groups, selections, advantage)


def _parameters(advantage: Advantage, where: str) -> list[str]:
    """Names of the parameters that have to be given."""
    open_ended = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    parameters = parameters_of(advantage, where=where).values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in open_ended]


def _call(advantage: Advantage, *arguments: object) -> object:
    with calling(f"the advantage {name_of(advantage)!r}", "f(rewards) or f(groups, selections)"):
        return cast(Callable[..., object], advantage)(*arguments)


def _titled(advantage: Advantage) -> str:
    """For messages."""
    return f"the advantage {name_of(advantage)!r}"


def _of_rewards(advantage: RewardAdvantage, rewards: Tensor) -> Tensor:
    """float64, the shape of `rewards`."""
    wanted = f"wanted one finite number per reward, a tensor {list(rewards.shape)}"
    values = _as_tensor(_titled(advantage), _call(advantage, rewards), wanted)
    if values.shape != rewards.shape:
        raise UsageError(f"{_titled(advantage)} returned the shape {list(values.shape)}; {wanted}")
    _check_finite(_titled(advantage), values, wanted)
    return values


def checked_advantages(
    source: str, answer: object, groups: Sequence[Group], selections: Sequence[Selection]
) -> list[Tensor]:
    """What a function returned as the advantages of a step: float32 [m] or [m, T] per group, 0 behind the ends.

    Args:
        source: names the function, for messages.
        answer: what it returned.
        groups, selections: of the step.

    Raises:
        UsageError: that is not one finite tensor [m] or [m, T] per group.
    """
    wanted = f"wanted one tensor per group, {len(groups)} in all"
    with calling(f"the answer of {source}"):
        if not isinstance(answer, Sequence):
            raise UsageError(f"{source} returned a {type(answer).__name__}; {wanted}")
        if len(answer) != len(groups):
            raise UsageError(f"{source} returned {len(answer)} tensors; {wanted}")
        return [_of_group(source, *each) for each in zip(answer, groups, selections, strict=True)]


def _of_group(source: str, answer: object, group: Group, selection: Selection) -> Tensor:
    lengths = [len(group.rollouts[i].token_ids) for i in selection.kept]
    m, longest = len(lengths), max(lengths, default=0)
    wanted = f"wanted [{m}], or [{m}, T] with T at least {longest}, all finite"
    values = _as_tensor(source, answer, wanted)
    is_good = values.ndim == 1 or (values.ndim == 2 and values.shape[1] >= longest)
    if not is_good or len(values) != m:
        got = f"the shape {list(values.shape)} for group {group.id!r}"
        raise UsageError(f"{source} returned {got}; {wanted}")
    if values.ndim == 2:
        values = torch.where(torch.arange(values.shape[1]) < torch.tensor(lengths)[:, None], values, 0.0)
    _check_finite(source, values, wanted)
    return values.to(torch.float32)


def _as_tensor(source: str, answer: object, wanted: str) -> Tensor:
    """float64 on the CPU, without gradient."""
    try:
        values = torch.as_tensor(answer).detach().to("cpu").to_dense()
        if not values.is_complex():
            return values.to(torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UsageError(f"{source} returned a {type(answer).__name__}; {wanted}") from error
    raise UsageError(f"{source} returned {values.dtype}; {wanted}")


def _check_finite(source: str, values: Tensor, wanted: str) -> None:
    if not torch.isfinite(values).all():
        raise UsageError(f"{source} returned NaN or inf; {wanted}")


def _check_rewards(rewards: Tensor) -> None:
    size = rewards.shape[-1] if rewards.ndim else 1
    if size < 2:
        raise UsageError(
            f"{size} reward per group (shape {tuple(rewards.shape)}); an advantage compares at least 2: "
            f"raise select.num_kept, or leave this group out"
        )
    if not torch.isfinite(rewards).all():
        raise UsageError("rewards hold NaN or inf; drop invalid rollouts before computing advantages")
