"""The choices that a policy loss is made of, each a small function in a table.

Shapes: B rows, T tokens; every [B, T] input is already 0 outside the mask.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

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
