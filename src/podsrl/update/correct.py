"""Correction for tokens that other weights drew than those that train on them: `[correct]`.

With π_θ the policy that is trained and μ the one that drew the token, the loss of a token is

    w · CLIP(π_θ / π_prox, A),    w = WEIGHT(π_prox / μ),    no gradient through w and π_prox

so the bound of the ratio lies around a *proximal* policy, and what is between it and the behaviour policy is a weight.
Published corrections are points of this space (docs/losses.md): AReaL's decoupled PPO (arXiv 2505.24298) is
`step_start` with `mask`, truncated importance sampling is `step_start` with `truncate`, and DOTS-RR's clipping
(arXiv 2506.05316) is `step_start` with `full`. `behaviour` without a weight is the plain loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from podsrl.update.batch import Batch
from podsrl.update.loss import MAX_LOG_RATIO, only

Proximal = Literal["behaviour", "step_start", "interpolated"]
Weight = Literal["none", "full", "truncate", "mask", "sequence"]


def _row_weight(log_weights: Tensor, cap: float) -> Tensor:
    whole = log_weights.sum(-1, keepdim=True).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return whole.exp().clamp(max=cap).expand_as(log_weights)


def _masked(log_weights: Tensor, cap: float) -> Tensor:
    weights = log_weights.exp()
    return torch.where(weights > cap, torch.zeros_like(weights), weights)


WEIGHTS: Mapping[Weight, Callable[[Tensor, float], Tensor]] = {
    "full": lambda log_weights, cap: log_weights.exp(),
    "truncate": lambda log_weights, cap: log_weights.exp().clamp(max=cap),
    "mask": _masked,
    "sequence": _row_weight,
}
"""Logs of π_prox / μ [B, T] (0 outside the targets), cap -> weights [B, T].

full: the ratio. truncate: at most the cap. mask: 0 above the cap; the token still counts where the loss divides.
sequence: the product over the row's tokens, at most the cap, for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A point of the space.

    Example:
        >>> decoupled = Correction(proximal="step_start", weight="mask", cap=5.0)
        >>> decoupled.is_plain, Correction().is_plain
        (False, True)
    """

    proximal: Proximal = "behaviour"
    """The policy of the bound: the one that drew the tokens; that of the weights at the start of the step's update; or
    the mean of log μ and the current log π_θ, weighted by `share`."""
    weight: Weight = "none"
    cap: float = 5.0
    """Largest weight; not read by "none" and "full"."""
    share: float = 0.5
    """Of log μ in an interpolated policy, 0 to 1."""

    @property
    def is_plain(self) -> bool:
        """Whether it changes nothing."""
        return self.proximal == "behaviour"

    def proximal_of(self, logprobs: Tensor, batch: Batch) -> Tensor | None:
        """Log-probs [B, T] under the proximal policy, without gradient; None: the behaviour policy's.

        Args:
            logprobs: [B, T] of the policy as it is.
            batch: with `start_logprobs` where weights have changed since the update began.
        """
        if self.is_plain:
            return None
        now = logprobs.detach()
        if self.proximal == "step_start":
            return now if batch.start_logprobs is None else batch.start_logprobs.to(now.dtype)
        return self.share * batch.behaviour_logprobs.to(now.dtype) + (1 - self.share) * now

    def weights_of(self, proximal: Tensor | None, batch: Batch) -> tuple[Tensor | None, Tensor]:
        """Weights [B, T], None where all are 1; and the number of tokens that the cap lowers."""
        if proximal is None or self.weight == "none":
            return None, batch.behaviour_logprobs.new_zeros(())
        difference = proximal - batch.behaviour_logprobs.to(proximal.dtype)
        log_weights = only(batch.target_mask, difference).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        weights = WEIGHTS[self.weight](log_weights, self.cap)
        full = _row_weight(log_weights, float("inf")) if self.weight == "sequence" else log_weights.exp()
        return weights, ((weights < full) & batch.target_mask).sum()


PLAIN = Correction()
