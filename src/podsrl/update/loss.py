"""The policy loss as independent choices: importance ratio, its bound, the average over tokens, and a KL penalty.

Goes in: log-probabilities [B, T], one advantage a row, a mask of the trained tokens. Comes out: a scalar to minimise,
and sums of statistics that add up over micro-batches. B rows, T tokens. Published losses are points of this space
(`NAMED_LOSSES`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import torch
from torch import Tensor

from podsrl.errors import UsageError, nearest
from podsrl.update.advantage import NORMALIZERS

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
    """[B, 1] trained tokens a row, at least 1 so that an empty row divides to 0."""
    return mask.sum(-1, keepdim=True).clamp(min=1)


# The ratio: log ratio of each token, mask -> log ratio [B, T].


def _token_ratio(log_ratios: Tensor, mask: Tensor) -> Tensor:
    return log_ratios


def _sequence_ratio(log_ratios: Tensor, mask: Tensor) -> Tensor:
    """GSPO-token (arXiv 2507.18071, section 4.3): the row's mean as value, the token's own log-prob as gradient."""
    mean = log_ratios.detach().sum(-1, keepdim=True) / _lengths(mask)
    return mean + log_ratios - log_ratios.detach()


RATIOS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "token": _token_ratio,
    "sequence": _sequence_ratio,
}
"""token: π/π_behaviour of each token. sequence: its geometric mean over the row, one value for all its tokens."""


# The bound: ratios, log-probs, advantages [B, 1], lowest and highest ratio -> losses [B, T], where it acts [B, T] bool.


def _ppo(ratios: Tensor, logprobs: Tensor, advantages: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    losses = -torch.minimum(ratios * advantages, ratios.clamp(low, high) * advantages)
    return losses, ((ratios > high) & (advantages > 0)) | ((ratios < low) & (advantages < 0))


def _cispo(ratios: Tensor, logprobs: Tensor, advantages: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    weights = ratios.detach().clamp(low, high)
    return -weights * advantages * logprobs, (ratios > high) | (ratios < low)


def _unbounded(ratios: Tensor, logprobs: Tensor, advantages: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    return -ratios * advantages, torch.zeros_like(ratios, dtype=torch.bool)


CLIPS: dict[str, Callable[[Tensor, Tensor, Tensor, float, float], tuple[Tensor, Tensor]]] = {
    "ppo": _ppo,
    "cispo": _cispo,
    "none": _unbounded,
}
"""ppo: -min(ρA, clip(ρ)A). cispo: -sg[clip(ρ)] A log π, so no token loses its gradient. none: -ρA."""


# The average: losses [B, T] (0 outside the mask), mask, rows and tokens of the step, length limit -> scalar.


def _sequence_mean(losses: Tensor, mask: Tensor, rows: float, tokens: float | Tensor, limit: int) -> Tensor:
    return (losses / _lengths(mask)).sum() / rows


def _token_mean(losses: Tensor, mask: Tensor, rows: float, tokens: float | Tensor, limit: int) -> Tensor:
    return losses.sum() / tokens


def _constant(losses: Tensor, mask: Tensor, rows: float, tokens: float | Tensor, limit: int) -> Tensor:
    return losses.sum() / (rows * limit)


AGGREGATES: dict[str, Callable[[Tensor, Tensor, float, float | Tensor, int], Tensor]] = {
    "sequence_mean": _sequence_mean,
    "token_mean": _token_mean,
    "constant": _constant,
}
"""sequence_mean: over a row's tokens, then rows. token_mean: over all tokens. constant: sum / (rows × max_length)."""


class LossStats(TypedDict):
    """Detached scalars over the trained tokens: sums, so micro-batches add; of `ratio_max` take the largest."""

    num_tokens: Tensor
    """Trained tokens."""
    clipped: Tensor
    """Tokens where the bound acts: ppo drops their gradient, cispo limits their weight."""
    kl: Tensor
    """k3 estimate of KL(policy || reference); 0 without a reference."""
    logprob_gap: Tensor
    """|logprobs - behaviour_logprobs|."""
    ratio_max: Tensor
    """Largest importance ratio; 0 where there is no token."""


def policy_loss(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float | None = None,
    clip_high: float | None = None,
    ratio: str = "token",
    clip: str = "ppo",
    aggregate: str = "sequence_mean",
    kl_beta: float = 0.0,
    reference_logprobs: Tensor | None = None,
    max_length: int | None = None,
    num_sequences: float | None = None,
    num_tokens: float | None = None,
) -> tuple[Tensor, LossStats]:
    """Policy-gradient loss over the trained tokens of a batch.

    Args:
        logprobs: [B, T] natural logs under the policy being trained; the gradient flows through them.
        behaviour_logprobs: [B, T] natural logs under the policy that sampled the tokens.
        advantages: [B], one per row, or [B, T], one per token.
        mask: [B, T] bool, the trained tokens; elsewhere the inputs may hold anything, NaN included.
        clip_low, clip_high: the ratio's bounds are 1 - clip_low and 1 + clip_high, each ≥ 0; not read by clip = "none".
        ratio, clip, aggregate: keys of `RATIOS`, `CLIPS` and `AGGREGATES`.
        kl_beta: weight of the k3 penalty to the reference, ≥ 0.
        reference_logprobs: [B, T], needed where kl_beta > 0.
        max_length: token limit of a completion, ≥ 1; needed by aggregate = "constant", not read by the others.
        num_sequences: rows of the whole optimizer step (default: B); micro-batch losses then sum to the step's loss.
        num_tokens: trained tokens of the whole optimizer step (default: those of `mask`).

    Returns:
        The scalar loss, and its statistics. A row without trained tokens adds 0 and counts as a row.

    Raises:
        UsageError: shapes that do not fit, an unknown choice, a missing bound, limit or reference.

    Example:
        >>> zeros = torch.zeros(2, 3)
        >>> loss, stats = policy_loss(zeros, zeros, torch.tensor([1.0, 3.0]), zeros == 0, **NAMED_LOSSES["grpo"])
        >>> loss.item(), stats["num_tokens"].item()
        (-2.0, 6)
    """
    _check_choices(ratio, clip, aggregate, clip_low, clip_high, max_length)
    _check_inputs(logprobs, behaviour_logprobs, advantages, mask, reference_logprobs, kl_beta)
    logprobs = only(mask, logprobs.float() if logprobs.dtype.itemsize < 4 else logprobs)
    log_ratios = logprobs - only(mask, behaviour_logprobs.to(logprobs.dtype))
    ratios = RATIOS[ratio](log_ratios, mask).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    low, high = 1 - (clip_low or 0.0), 1 + (clip_high or 0.0)
    advantages = advantages.to(logprobs.dtype)
    advantages = advantages[:, None] if advantages.ndim == 1 else only(mask, advantages)
    losses, clipped = CLIPS[clip](ratios, logprobs, advantages, low, high)
    kl = logprobs.new_zeros(())
    if reference_logprobs is not None:
        kl = only(mask, k3(only(mask, reference_logprobs.to(logprobs.dtype)) - logprobs))
        losses = losses + kl_beta * kl
    rows = max(len(mask) if num_sequences is None else num_sequences, 1)
    tokens = mask.sum().clamp(min=1) if num_tokens is None else max(num_tokens, 1)
    loss = AGGREGATES[aggregate](only(mask, losses), mask, rows, tokens, max_length or 1)
    return loss, _stats(mask, clipped, kl, log_ratios, ratios)


@torch.no_grad()
def _stats(mask: Tensor, clipped: Tensor, kl: Tensor, log_ratios: Tensor, ratios: Tensor) -> LossStats:
    return LossStats(
        num_tokens=mask.sum(),
        clipped=(clipped & mask).sum(),
        kl=kl.sum(),
        logprob_gap=log_ratios.abs().sum(),
        ratio_max=only(mask, ratios).max() if mask.numel() else ratios.new_zeros(()),
    )


NAMED_LOSSES: dict[str, dict[str, Any]] = {
    # DeepSeekMath, arXiv 2402.03300, eq. 3, with PPO's usual bounds.
    "grpo": {"ratio": "token", "clip": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregate": "sequence_mean"},
    # arXiv 2503.20783: every token weighs the same whatever its row's length.
    "dr_grpo": {"ratio": "token", "clip": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregate": "constant"},
    # arXiv 2503.14476: clip-higher and a token-level mean; its dynamic sampling is no part of the loss.
    "dapo": {"ratio": "token", "clip": "ppo", "clip_low": 0.2, "clip_high": 0.28, "aggregate": "token_mean"},
    # arXiv 2507.18071: a sequence's ratio moves little, hence the narrow bounds.
    "gspo": {"ratio": "sequence", "clip": "ppo", "clip_low": 3e-4, "clip_high": 4e-4, "aggregate": "sequence_mean"},
    # MiniMax-M1, arXiv 2506.13585, eq. 4: no lower bound. The upper bound of 5 is from ScaleRL, arXiv 2510.13786.
    "cispo": {"ratio": "token", "clip": "cispo", "clip_low": 1.0, "clip_high": 4.0, "aggregate": "token_mean"},
    # arXiv 2402.14740: REINFORCE on whole sequences, no bound; max_length only scales the learning rate.
    "rloo": {"ratio": "token", "clip": "none", "aggregate": "constant"},
    # arXiv 2501.03262: PPO's bounds, token-level mean.
    "reinforce_pp_baseline": {
        "ratio": "token",
        "clip": "ppo",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "aggregate": "token_mean",
    },
    # arXiv 2601.22582: GRPO's loss; the difference is in the advantage.
    "mc_grpo": {"ratio": "token", "clip": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregate": "sequence_mean"},
}
"""Name -> keyword arguments of `policy_loss`. A KL penalty is a choice apart (`kl_beta`), 0 unless asked for."""

NAMED_ADVANTAGES: dict[str, str] = {
    "grpo": "std",
    "dr_grpo": "none",
    "dapo": "std",
    "gspo": "std",
    "cispo": "std",
    "rloo": "leave_one_out",
    "reinforce_pp_baseline": "batch_std",
    "mc_grpo": "median_mad",
}
"""Name of the loss -> the key of `advantage.NORMALIZERS` that its paper pairs it with.

MC-GRPO generates G + 1 rollouts and trains on G: the median rollout, the pivot, is left out. Here the pivot is a kept
row whose advantage is exactly 0, so keep G + 1 of them. Without a KL penalty the pivot costs no forward pass and gives
no gradient; it still counts as a row, which scales the loss by G / (G + 1).
"""


def resolve_loss(
    name: str,
    *,
    advantage: str | None = None,
    ratio: str | None = None,
    clip: str | None = None,
    clip_low: float | None = None,
    clip_high: float | None = None,
    aggregate: str | None = None,
) -> tuple[str, dict[str, Any]]:
    """A named loss with some of its coordinates changed.

    Args:
        name: a key of `NAMED_LOSSES`.
        advantage, ratio, clip, clip_low, clip_high, aggregate: replace the named loss's value; None keeps it.

    Returns:
        The key of `advantage.NORMALIZERS`, and keyword arguments of `policy_loss`.

    Raises:
        UsageError: an unknown name or choice, bounds for a loss that has none, or none for a loss that needs them.

    Example:
        >>> resolve_loss("rloo", aggregate="token_mean")
        ('leave_one_out', {'ratio': 'token', 'clip': 'none', 'aggregate': 'token_mean'})
    """
    _check_choice("name", name, NAMED_LOSSES)
    choices = {**NAMED_LOSSES[name], **_given(ratio=ratio, clip=clip, aggregate=aggregate)}
    bounds = _given(clip_low=clip_low, clip_high=clip_high)
    if choices["clip"] == "none":
        if bounds:
            raise UsageError(
                f"loss.{next(iter(bounds))} has no effect with clip = 'none'; "
                f"leave it out, or set loss.clip to 'ppo' or 'cispo'"
            )
        choices.pop("clip_low", None)
        choices.pop("clip_high", None)
    choices.update(bounds)
    advantage = NAMED_ADVANTAGES[name] if advantage is None else advantage
    _check_choice("advantage", advantage, NORMALIZERS)
    dry_run(**choices, max_length=1)
    return advantage, choices


def dry_run(**choices: Any) -> None:
    """Raise now what `policy_loss` would raise for these keyword arguments once there are rollouts."""
    zero = torch.zeros(1, 1)
    policy_loss(zero, zero, zero[0], zero == 0, reference_logprobs=zero, **choices)


def _check_choices(
    ratio: str, clip: str, aggregate: str, clip_low: float | None, clip_high: float | None, max_length: int | None
) -> None:
    _check_choice("ratio", ratio, RATIOS)
    _check_choice("clip", clip, CLIPS)
    _check_choice("aggregate", aggregate, AGGREGATES)
    for option, value in (("clip_low", clip_low), ("clip_high", clip_high)):
        if clip != "none" and (value is None or not value >= 0):
            raise UsageError(
                f"loss.{option} = {value} with clip = {clip!r}; set it to a number ≥ 0, or set loss.clip to 'none'"
            )
    if aggregate == "constant" and (max_length is None or max_length < 1):
        raise UsageError(
            f"max_length = {max_length} with aggregate = 'constant'; pass the token limit of a completion, ≥ 1"
        )


def _check_choice(option: str, value: str, known: Mapping[str, Any]) -> None:
    if value not in known:
        raise UsageError(f"loss.{option} = {value!r} is unknown.{nearest(value, known)}")


def _given(**options: Any) -> dict[str, Any]:
    return {option: value for option, value in options.items() if value is not None}


def _check_inputs(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor, reference: Tensor | None, kl_beta: float
) -> None:
    shape = tuple(logprobs.shape)
    tensors = {"behaviour_logprobs": behaviour, "mask": mask, "reference_logprobs": reference}
    for name, tensor in tensors.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise UsageError(f"{name} has shape {tuple(tensor.shape)}, logprobs {shape}; both are [B, T]")
    if len(shape) != 2 or tuple(advantages.shape) not in (shape[:1], shape):
        raise UsageError(
            f"advantages have shape {tuple(advantages.shape)} for logprobs {shape}; want [B] or [B, T] for [B, T]"
        )
    if mask.dtype != torch.bool:
        raise UsageError(f"mask has dtype {mask.dtype}; want torch.bool (mask > 0)")
    if kl_beta < 0 or (kl_beta > 0 and reference is None):
        raise UsageError(f"kl_beta = {kl_beta}; want 0, or a number > 0 together with reference_logprobs")
