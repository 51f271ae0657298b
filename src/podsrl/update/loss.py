"""The policy loss as independent choices: importance ratio, its bound, the average over tokens, and a KL penalty.

`policy_loss` gives a scalar to minimise, and sums of statistics that add up over micro-batches. Published losses are
points in the space of choices (`algorithms.py`). B rows, T tokens; the functions of the tables get [B, T] inputs that
are 0 outside the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from podsrl.errors import UsageError, nearest

Ratio = Literal["token", "sequence"]
Clip = Literal["ppo", "cispo", "none"]
Aggregate = Literal["sequence_mean", "token_mean", "constant", "group_mean"]

MAX_LOG_RATIO = 20.0
"""A log ratio beyond ±20 counts as ±20, without gradient: exp could overflow, and inf times a bound's 0 is NaN."""


def only(mask: Tensor, values: Tensor) -> Tensor:
    """`values`, and zero outside the mask whatever stood there: a product with 0 would keep NaN."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def k3(difference: Tensor) -> Tensor:
    """exp(d) - d - 1, d = reference - policy: unbiased for KL(policy || reference), never negative (Schulman 2020)."""
    difference = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return difference.exp() - difference - 1


def _lengths(mask: Tensor) -> Tensor:
    """[B, 1] trained tokens per row, at least 1 so that an empty row divides to 0."""
    return mask.sum(-1, keepdim=True).clamp(min=1)


# The ratio: log ratio of each token, mask -> log ratio [B, T].


def _sequence_ratio(log_ratios: Tensor, mask: Tensor) -> Tensor:
    """GSPO-token (arXiv 2507.18071, section 4.3): the row's mean as value, the token's own log-prob as gradient."""
    mean = log_ratios.detach().sum(-1, keepdim=True) / _lengths(mask)
    return mean + log_ratios - log_ratios.detach()


RATIOS: dict[Ratio, Callable[[Tensor, Tensor], Tensor]] = {
    "token": lambda log_ratios, mask: log_ratios,
    "sequence": _sequence_ratio,
}
"""token: π/π_behaviour of each token. sequence: its geometric mean over the row, one value for all its tokens."""


# Bounds: ratios, log-probs, advantages [B, 1] or [B, T], lowest and highest ratio (a number or [B, 1]) -> losses
# [B, T], and where the bound acts [B, T] bool.


def _ppo(ratios: Tensor, logprobs: Tensor, advantages: Tensor, low: Any, high: Any) -> tuple[Tensor, Tensor]:
    losses = -torch.minimum(ratios * advantages, ratios.clamp(low, high) * advantages)
    return losses, ((ratios > high) & (advantages > 0)) | ((ratios < low) & (advantages < 0))


def _cispo(ratios: Tensor, logprobs: Tensor, advantages: Tensor, low: Any, high: Any) -> tuple[Tensor, Tensor]:
    weights = ratios.detach().clamp(low, high)
    return -weights * advantages * logprobs, (ratios > high) | (ratios < low)


def _unbounded(ratios: Tensor, logprobs: Tensor, advantages: Tensor, low: Any, high: Any) -> tuple[Tensor, Tensor]:
    return -ratios * advantages, torch.zeros_like(ratios, dtype=torch.bool)


CLIPS: dict[Clip, Callable[[Tensor, Tensor, Tensor, Any, Any], tuple[Tensor, Tensor]]] = {
    "ppo": _ppo,
    "cispo": _cispo,
    "none": _unbounded,
}
"""ppo: -min(ρA, clip(ρ)A). cispo: -sg[clip(ρ)] A log π, so no token loses its gradient. none: -ρA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a loss is divided by."""

    rows: float
    """Of the whole step."""
    tokens: float | Tensor
    """Trained ones, of the whole step."""
    limit: int
    """Tokens of a completion, at most."""
    weights: Tensor | None
    """[B] each row's weight; their mean over the rows of the whole step is 1."""


def _group_mean(losses: Tensor, mask: Tensor, counts: Counts) -> Tensor:
    assert counts.weights is not None, "checked by policy_loss"
    return ((losses / _lengths(mask)).sum(-1) * counts.weights).sum() / counts.rows


AGGREGATES: dict[Aggregate, Callable[[Tensor, Tensor, Counts], Tensor]] = {
    "sequence_mean": lambda losses, mask, counts: (losses / _lengths(mask)).sum() / counts.rows,
    "token_mean": lambda losses, mask, counts: losses.sum() / counts.tokens,
    "constant": lambda losses, mask, counts: losses.sum() / (counts.rows * counts.limit),
    "group_mean": _group_mean,
}
"""Losses [B, T] (0 outside the mask), mask, counts -> scalar.

sequence_mean: over a row's tokens, then rows. token_mean: over all tokens. constant: sum / (rows × max_length).
group_mean: over a row's tokens, then the rows of a group, then groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpec:
    """The choices that make a published loss; each is an argument of `policy_loss`."""

    ratio: Ratio
    clip: Clip
    aggregate: Aggregate
    clip_low: float | None = None
    clip_high: float | None = None
    """The bounds are None where clip = "none"."""

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `policy_loss`, without bounds that are None."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


class LossStats(TypedDict):
    """Detached, over the trained tokens: sums, so micro-batches add; of `ratio_max` take the largest."""

    num_tokens: Tensor
    is_clipped: Tensor
    """[B, T] bool: tokens where the bound acts; ppo drops their gradient, cispo limits their weight."""
    clipped: Tensor
    """How many these are."""
    kl: Tensor
    """k3 estimate of KL(policy || reference); 0 without a reference."""
    logprob_gap: Tensor
    """|logprobs - behaviour_logprobs|."""
    ratio_max: Tensor
    """Largest importance ratio, to the proximal policy; 0 where there is no token."""


def policy_loss(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float | None = None,
    clip_high: float | None = None,
    ratio: Ratio = "token",
    clip: Clip = "ppo",
    aggregate: Aggregate = "sequence_mean",
    kl_beta: float = 0.0,
    reference_logprobs: Tensor | None = None,
    max_length: int | None = None,
    num_sequences: float | None = None,
    num_tokens: float | None = None,
    row_weights: Tensor | None = None,
    proximal_logprobs: Tensor | None = None,
    token_weights: Tensor | None = None,
    row_bounds: Tensor | None = None,
) -> tuple[Tensor, LossStats]:
    """Policy-gradient loss over the trained tokens of a batch.

    Args:
        logprobs: [B, T] natural logs under the policy being trained; the gradient flows through them.
        behaviour_logprobs: [B, T] natural logs under the policy that sampled the tokens.
        advantages: [B], one per row, or [B, T], one per token.
        mask: [B, T] bool, the trained tokens; elsewhere the inputs may hold anything, NaN included.
        clip_low, clip_high: the ratio's bounds are 1 - clip_low and 1 + clip_high, each ≥ 0; not read by clip = "none".
        ratio, clip, aggregate: see `RATIOS`, `CLIPS` and `AGGREGATES`.
        kl_beta: weight of the k3 penalty to the reference, ≥ 0.
        reference_logprobs: [B, T], needed where kl_beta > 0.
        max_length: token limit of a completion, ≥ 1; needed by aggregate = "constant", not read by the others.
        num_sequences: rows of the whole optimizer step (default: B); micro-batch losses then sum to the step's loss.
        num_tokens: trained tokens of the whole optimizer step (default: those of `mask`).
        row_weights: [B], needed by aggregate = "group_mean", not read by the others: rows of the step / (groups of the
            step × rows of the row's group), as `podsrl.update.group_weights` gives them.
        proximal_logprobs: [B, T] natural logs under the policy around which the ratio is bounded, without gradient;
            by default the behaviour policy's.
        row_bounds: [B], how far the ratio of a row may be from 1 in place of clip_low and clip_high; NaN: as these say.
        token_weights: [B, T], without gradient, what each token's policy loss is multiplied by; the KL penalty is not.

    Returns:
        The scalar loss, and its statistics. A row without trained tokens adds 0 and counts as a row.

    Raises:
        UsageError: shapes that do not fit, an unknown choice, a missing bound, limit, reference or weight.

    Example:
        >>> zeros, advantages = torch.zeros(2, 3), torch.tensor([1.0, 3.0])
        >>> loss, stats = policy_loss(zeros, zeros, advantages, zeros == 0, clip_low=0.2, clip_high=0.2)
        >>> loss.item(), stats["num_tokens"].item()
        (-2.0, 6)
    """
    _check_choices(ratio, clip, aggregate, clip_low, clip_high, max_length)
    named = {
        "behaviour_logprobs": behaviour_logprobs,
        "reference_logprobs": reference_logprobs,
        "proximal_logprobs": proximal_logprobs,
        "token_weights": token_weights,
    }
    _check_inputs(logprobs, named, advantages, mask, kl_beta)
    logprobs = only(mask, logprobs.float() if logprobs.dtype.itemsize < 4 else logprobs)
    gaps = logprobs - only(mask, behaviour_logprobs.to(logprobs.dtype))
    log_ratios = gaps if proximal_logprobs is None else logprobs - only(mask, proximal_logprobs.to(logprobs.dtype))
    ratios = RATIOS[ratio](log_ratios, mask).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    below, above = (_bound(width or 0.0, row_bounds, logprobs) for width in (clip_low, clip_high))
    low, high = 1 - below, 1 + above
    advantages = advantages.to(logprobs.dtype)
    advantages = advantages[:, None] if advantages.ndim == 1 else only(mask, advantages)
    losses, clipped = CLIPS[clip](ratios, logprobs, advantages, low, high)
    if token_weights is not None:
        losses = losses * only(mask, token_weights.to(logprobs.dtype))
    kl = logprobs.new_zeros(())
    if reference_logprobs is not None:
        kl = only(mask, k3(only(mask, reference_logprobs.to(logprobs.dtype)) - logprobs))
        losses = losses + kl_beta * kl
    rows = max(len(mask) if num_sequences is None else num_sequences, 1)
    tokens = mask.sum().clamp(min=1) if num_tokens is None else max(num_tokens, 1)
    weights = _checked_weights(row_weights, aggregate, mask)
    counts = Counts(rows=rows, tokens=tokens, limit=max_length or 1, weights=weights)
    loss = AGGREGATES[aggregate](only(mask, losses), mask, counts)
    return loss, _stats(mask, clipped, kl, gaps, ratios)


def _bound(width: float, row_bounds: Tensor | None, logprobs: Tensor) -> float | Tensor:
    """How far a ratio may be from 1: one number, or [B, 1]."""
    if row_bounds is None:
        return width
    rows = row_bounds.to(logprobs.dtype)
    return torch.where(rows.isnan(), width, rows).unsqueeze(-1)


@torch.no_grad()
def _stats(mask: Tensor, clipped: Tensor, kl: Tensor, gaps: Tensor, ratios: Tensor) -> LossStats:
    return LossStats(
        num_tokens=mask.sum(),
        is_clipped=clipped & mask,
        clipped=(clipped & mask).sum(),
        kl=kl.sum(),
        logprob_gap=gaps.abs().sum(),
        ratio_max=only(mask, ratios).max() if mask.numel() else ratios.new_zeros(()),
    )


def check_loss(loss: LossSpec, *, max_length: int | None, kl_beta: float = 0.0) -> None:
    """Raise now what `policy_loss` would raise for these arguments once there are rollouts."""
    zero, options = torch.zeros(1, 1), loss.arguments() | {"kl_beta": kl_beta, "max_length": max_length}
    policy_loss(zero, zero, zero[0], zero == 0, reference_logprobs=zero, row_weights=zero[0], **options)


def _check_choices(
    ratio: Ratio,
    clip: Clip,
    aggregate: Aggregate,
    clip_low: float | None,
    clip_high: float | None,
    max_length: int | None,
) -> None:
    tables: dict[str, tuple[str, Collection[str]]] = {
        "ratio": (ratio, RATIOS),
        "clip": (clip, CLIPS),
        "aggregate": (aggregate, AGGREGATES),
    }
    for choice, (name, known) in tables.items():
        if name not in known:
            raise UsageError(f"loss.{choice} = {name!r} is unknown.{nearest(name, known)}")
    for option, value in (("clip_low", clip_low), ("clip_high", clip_high)):
        if clip != "none" and (value is None or not value >= 0):
            raise UsageError(
                f"loss.{option} = {value} with clip = {clip!r}; set it to a number ≥ 0, or set loss.clip to 'none'"
            )
    if aggregate == "constant" and (max_length is None or max_length < 1):
        raise UsageError(
            f"max_length = {max_length} with aggregate = 'constant'; pass the token limit of a completion, ≥ 1"
        )


def _checked_weights(weights: Tensor | None, aggregate: Aggregate, mask: Tensor) -> Tensor | None:
    """None where nothing reads them."""
    if aggregate != "group_mean":
        return None
    if weights is None or tuple(weights.shape) != (len(mask),):
        got = "are missing" if weights is None else f"have shape {tuple(weights.shape)}"
        raise UsageError(f"row_weights {got} with aggregate = 'group_mean'; want [{len(mask)}], one per row")
    return weights


def _check_inputs(
    logprobs: Tensor, named: Mapping[str, Tensor | None], advantages: Tensor, mask: Tensor, kl_beta: float
) -> None:
    shape = tuple(logprobs.shape)
    for name, tensor in {**named, "mask": mask}.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise UsageError(f"{name} has shape {tuple(tensor.shape)}, logprobs {shape}; both are [B, T]")
    if len(shape) != 2 or tuple(advantages.shape) not in (shape[:1], shape):
        raise UsageError(
            f"advantages have shape {tuple(advantages.shape)} for logprobs {shape}; want [B] or [B, T] for [B, T]"
        )
    if mask.dtype != torch.bool:
        raise UsageError(f"mask has dtype {mask.dtype}; want torch.bool (mask > 0)")
    if kl_beta < 0 or (kl_beta > 0 and named["reference_logprobs"] is None):
        raise UsageError(f"kl_beta = {kl_beta}; want 0, or a number > 0 together with reference_logprobs")
