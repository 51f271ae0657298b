"""Logits -> one token a row, with the exact log-probability of the distribution it was drawn from."""

from __future__ import annotations

import torch
from torch import Tensor

from podsrl.generate.request import Sampling

_CHUNK_ELEMENTS = 1 << 24
"""Rows are taken in chunks of about this many logits, so that float64 sums of a large vocabulary stay small."""
_ROUNDING = 1e-6
"""Relative error of a float32 probability: without this slack, a nucleus of half of ten equal tokens would have six."""


def sample(logits: Tensor, uniform: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Draw a token a row by inverting the cumulative distribution.

    Args:
        logits: [B, V], any float dtype.
        uniform: [B] float64 in [0, 1), one number a row.
        sampling: temperature and filters, the same for all rows.

    Returns:
        tokens [B] int64 and their log-probabilities [B] float32 after temperature and filters. A row whose logits hold
        NaN or +inf, or only -inf, gets the log-probability NaN and token 0.

    Example:
        >>> sample(torch.zeros(1, 4), torch.tensor([0.6], dtype=torch.float64), Sampling())[0]
        tensor([2])
    """
    rows = max(1, _CHUNK_ELEMENTS // logits.shape[1])
    if logits.shape[0] <= rows:
        return _sample_chunk(logits, uniform, sampling)
    starts = range(0, logits.shape[0], rows)
    chunks = [_sample_chunk(logits[i : i + rows], uniform[i : i + rows], sampling) for i in starts]
    return torch.cat([tokens for tokens, _ in chunks]), torch.cat([logprobs for _, logprobs in chunks])


def filtered_logprobs(logits: Tensor, sampling: Sampling) -> Tensor:
    """The log-probabilities that tokens are drawn from, -inf where filtered out: [B, V] -> [B, V] float32."""
    logprobs = torch.log_softmax(logits.float() / sampling.temperature, dim=-1)
    if 0 < sampling.top_k < logits.shape[1]:
        threshold = logprobs.topk(sampling.top_k, dim=-1).values[:, -1:]
        logprobs = _keep(logprobs, logprobs >= threshold)
    if sampling.top_p < 1:
        logprobs = _keep(logprobs, _nucleus(logprobs, sampling.top_p))
    if sampling.min_p > 0:
        cutoff = logprobs.amax(dim=-1, keepdim=True) + torch.tensor(sampling.min_p).log().to(logprobs)
        logprobs = _keep(logprobs, logprobs >= cutoff)
    return logprobs


def _sample_chunk(logits: Tensor, uniform: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    logprobs = filtered_logprobs(logits, sampling)
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    # right=True finds the first token whose cumulative sum is above the target, so a token of probability 0 never wins.
    targets = uniform[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, targets, right=True).clamp_(max=logits.shape[1] - 1)
    chosen = logprobs.gather(-1, tokens)[:, 0]
    is_valid = cumulative[:, -1] > 0  # False for NaN too
    return torch.where(is_valid, tokens[:, 0], 0), torch.where(is_valid, chosen, torch.nan)


def _nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    """The likeliest tokens up to and including the one that reaches top_p; ties go by token id."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(dim=-1, dtype=torch.float64) - ordered.exp()
    return torch.zeros_like(logprobs, dtype=torch.bool).scatter_(-1, order, before < top_p * (1 - _ROUNDING))


def _keep(logprobs: Tensor, mask: Tensor) -> Tensor:
    return torch.log_softmax(logprobs.masked_fill(~mask, -torch.inf), dim=-1)
