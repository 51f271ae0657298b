"""Correction for tokens that other weights drew than those that train on them: `[correct]`.

With π_θ the policy that is trained and μ the one that drew the token, the loss of a token is

    w · CLIP(π_θ / π_prox, A),    w = WEIGHT(π_prox / μ),    no gradient through w and π_prox

so the bound of the ratio lies around a *proximal* policy, and what is between it and the behaviour policy is a weight.
A token without a gradient (`drop`) still counts where the loss divides, and the learning rate may fall with the
effective sample size of the rows (`rate`).

Published corrections are points of this space (docs/losses.md): AReaL's decoupled PPO (arXiv 2505.24298) is
`step_start` with `mask`, truncated importance sampling is `step_start` with `truncate`, DOTS-RR's clipping
(arXiv 2506.05316) is `step_start` with `full`, PPO-EWMA (arXiv 2110.00641, 2605.12070) is `average`, F-TIS's filter
(arXiv 2605.22537) is `far_negative`, and VCPO (arXiv 2602.17616) is `sequence`, `effective` and `off_policy`.
`behaviour` without a weight is the plain loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.update.batch import Batch
from podsrl.update.loss import MAX_LOG_RATIO, only

Proximal = Literal["behaviour", "step_start", "interpolated", "average"]
Weight = Literal["none", "full", "truncate", "mask", "sequence"]
Drop = Literal["none", "far_negative"]
Rate = Literal["constant", "effective"]
Baseline = Literal["none", "off_policy"]


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

    Example: AReaL's decoupled PPO reads log-probs from before an update of four optimizer steps.

        >>> Correction(proximal="step_start", weight="mask", cap=5.0).reads_start(4), Correction().reads_start(4)
        (True, False)
    """

    proximal: Proximal = "behaviour"
    """The policy of the bound: the one that drew the tokens; that of the weights at the start of the step's update;
    the mean of log μ and the current log π_θ, weighted by `share`; or that of an average of the last weights
    (`update/average.py`)."""
    weight: Weight = "none"
    cap: float = 5.0
    """Largest weight; not read by "none" and "full"."""
    share: float = 0.5
    """Of log μ in an interpolated policy, 0 to 1."""
    window: float = 2.0
    """Versions that an average looks back, at least 0."""
    reset: float = 0.9
    """An average begins again with the newest weights after an update in which fewer tokens than this share were
    neither bounded nor capped; 0: never."""
    drop: Drop = "none"
    """"far_negative": a token of a negative advantage has no gradient where its row is unlikely by now: where the sum
    over the row of log μ - log π_θ, an estimate of KL(μ || π_θ), is above `max_kl`."""
    max_kl: float = 50.0
    rate: Rate = "constant"
    """"effective": the learning rate is multiplied by the root of the effective sample size's share of the rows that go
    through the model, (Σ v)² / (B Σ v²), v being the whole ratio π_θ / μ of a row when the optimizer step began."""

    baseline: Baseline = "none"
    """"off_policy": from the advantages of a prompt's rows goes the b for which the variance of their gradient is
    least, b = Σ g² A / Σ g², g being the norm of the gradient that a row has with advantage 1, its weight included
    (VCPO). It takes a backward pass per row."""

    def reads_start(self, num_steps: int) -> bool:
        """Whether it reads log-probs from before an update of so many optimizer steps."""
        return (self.proximal == "step_start" and num_steps > 1) or self.has_average

    @property
    def has_average(self) -> bool:
        """Whether weights are averaged."""
        return self.proximal == "average"

    def proximal_of(self, logprobs: Tensor, batch: Batch) -> Tensor | None:
        """Log-probs [B, T] under the proximal policy, without gradient; None: the behaviour policy's.

        Args:
            logprobs: [B, T] of the policy as it is.
            batch: with `start_logprobs` where weights have changed since the update began.
        """
        if self.proximal == "behaviour":
            return None
        now = logprobs.detach()
        if self.has_average and batch.start_logprobs is None:
            raise UsageError(
                "correct.proximal = 'average' reads log-probs under averaged weights, and the batch has none: train by "
                "Trainer.update, or give the batch to Updater.with_start first"
            )
        if self.proximal != "interpolated":
            return now if batch.start_logprobs is None else batch.start_logprobs.to(now.dtype)
        return self.share * batch.behaviour_logprobs.to(now.dtype) + (1 - self.share) * now

    def weights_of(self, logprobs: Tensor, proximal: Tensor | None, batch: Batch) -> TokenWeights:
        """Weights of the tokens, from the log-probs [B, T] of the policy as it is and the proximal policy."""
        is_capped = torch.zeros_like(batch.target_mask)
        if self.weight == "none" and self.drop == "none":
            return TokenWeights(weights=None, is_capped=is_capped, num_dropped=_zero(batch))
        weights = torch.ones_like(logprobs)
        if proximal is not None and self.weight != "none":
            log_weights = _log_ratio(proximal, batch).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
            weights = WEIGHTS[self.weight](log_weights, self.cap)
            full = _row_weight(log_weights, float("inf")) if self.weight == "sequence" else log_weights.exp()
            is_capped = (weights < full) & batch.target_mask
        num_dropped = _zero(batch)
        if self.drop == "far_negative":
            is_far = -_log_ratio(logprobs, batch).sum(-1, keepdim=True) > self.max_kl
            advantages = batch.advantages if batch.advantages.ndim == 2 else batch.advantages[:, None]
            is_dropped = is_far & (advantages < 0)
            weights = weights.masked_fill(is_dropped, 0.0)
            num_dropped = (is_dropped & batch.target_mask).sum()
        return TokenWeights(weights=weights.detach(), is_capped=is_capped, num_dropped=num_dropped)

    def row_sums(self, logprobs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logarithms of Σ v and Σ v² over the rows, for `rate_of`; v is a row's whole ratio π_θ / μ."""
        if self.rate == "constant":
            return _zero(batch), _zero(batch)
        rows = _log_ratio(logprobs, batch).double().sum(-1)
        return rows.logsumexp(0), (2 * rows).logsumexp(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWeights:
    """What a correction makes of the tokens of a batch."""

    weights: Tensor | None
    """[B, T]; None where all are 1."""
    is_capped: Tensor
    """[B, T] bool: tokens that the cap lowers."""
    num_dropped: Tensor
    """Tokens that lost their gradient."""


def rate_of(log_sum: float, log_squares: float, num_rows: int) -> float:
    """The factor on the learning rate, 0 to 1, from `Correction.row_sums` of so many rows; 1 without rows.

    Example: one of four rows has all of the weight.

        >>> rate_of(0.0, 0.0, 4), rate_of(math.log(4), math.log(4), 4), rate_of(0.0, 0.0, 0)
        (0.5, 1.0, 1.0)
    """
    return math.exp(min(0.0, (2 * log_sum - log_squares - math.log(num_rows)) / 2)) if num_rows else 1.0


def least_variance(advantages: Tensor, norms: Tensor, group: Tensor) -> Tensor:
    """Advantages A - b [B], with b = Σ g² A / Σ g² over the rows of a group; b is 0 where all of its g are 0.

    Any baseline that the rows of a group share may have been taken before: b becomes so much less.

    Args:
        advantages: A [B].
        norms: g [B], of the gradient that a row has with advantage 1.
        group: [B] int64.

    Source: VCPO (arXiv 2602.17616), its off-policy baseline.

    Example:
        >>> least_variance(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 0.0]), torch.tensor([4, 4, 7]))
        tensor([ 0.5000, -0.5000,  1.0000])
    """
    _, place = torch.unique(group, return_inverse=True)
    squares = norms.double() ** 2
    zeros = torch.zeros(len(group), dtype=torch.float64)
    above, below = (zeros.index_add(0, place, each) for each in (squares * advantages.double(), squares))
    shift = torch.where(below > 0, above / below, 0.0)[place]
    return (advantages.double() - shift).to(advantages.dtype)


def check_baseline(baseline: Baseline, *, clip: str, kl_beta: float) -> None:
    """UsageError: a row's gradient is not its advantage times what it is with advantage 1."""
    if baseline != "none" and (clip != "none" or kl_beta > 0):
        raise UsageError(
            f"correct.baseline = {baseline!r} with loss.clip = {clip!r} and loss.kl_beta = {kl_beta:g}: it wants "
            "gradients that are a multiple of the advantage; set loss.clip = 'none' and loss.kl_beta = 0, or "
            "correct.baseline = 'none'"
        )


def _log_ratio(logprobs: Tensor, batch: Batch) -> Tensor:
    """[B, T] log π - log μ, without gradient; 0 outside the targets."""
    return only(batch.target_mask, logprobs.detach() - batch.behaviour_logprobs.to(logprobs.dtype))


def _zero(batch: Batch) -> Tensor:
    return batch.behaviour_logprobs.new_zeros(())


PLAIN = Correction()
