"""Logits -> one token per rollout, with its exact log-probability under the distribution that it was drawn from.

The work over the vocabulary (softmax, filters, cumulative sums) is done once per row; then every rollout looks up its
token in its row. Several rollouts may share a row: those of one prompt whose tokens agree so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from podsrl.generate.base import Sampling
from podsrl.lib.devices import why_no_kernels

_CPU_CHUNK_ELEMENTS = 1 << 20
"""Logits per chunk of rows on a CPU, so that the work stays in its caches."""
_CHUNK_ELEMENTS = 1 << 24
"""Logits per chunk elsewhere, so that the float64 sums of a large vocabulary stay small."""
_COPIED_ELEMENTS = 1 << 18
"""Up to this many sums, rollouts' rows are copied and searched by one operation; beyond, by bisection in place."""
_NO_FILTERS = Sampling().shape[1:]
_ROUNDING = 1e-6
"""Relative error of a float32 probability: without this slack, a nucleus of half of ten equal tokens would have six."""


class Drawn(NamedTuple):
    """The tokens of B rollouts. Where a row's logits are broken, the token is 0 and the log-probability is NaN."""

    tokens: Tensor
    """[B] int64."""
    logprobs: Tensor
    """[B] float32, natural logs under the distribution drawn from: after temperature and filters."""


def draw(logits: Tensor, row_of: Tensor | None, uniform: Tensor, sampling: Sampling) -> Drawn:
    """Draw one token per rollout by inverting the cumulative distribution of its row.

    Args:
        logits: [R, V], any float dtype.
        row_of: [B] int64 in 0 .. R-1, the row of each rollout; None: B = R, rollout b has row b.
        uniform: [B] float64 in [0, 1), one number per rollout.
        sampling: temperature and filters, the same for all.

    Returns:
        Tokens and log-probabilities, [B] each. A row whose logits hold NaN or +inf, or only -inf, is broken.

    Example:
        >>> draw(torch.zeros(1, 4), torch.tensor([0, 0]), torch.tensor([0.6, 0.1]).double(), Sampling()).tokens
        tensor([2, 0])
    """
    num_rows, vocabulary = logits.shape
    if sampling.shape[1:] == _NO_FILTERS and why_no_kernels(logits.device.type) is None:
        from podsrl.generate.engine.draw_kernels import draw_unfiltered

        return Drawn(*draw_unfiltered(logits, row_of, uniform, sampling.temperature))
    elements = _CPU_CHUNK_ELEMENTS if logits.device.type == "cpu" else _CHUNK_ELEMENTS
    size = max(1, elements // vocabulary)
    if num_rows <= size:
        return _draw(logits, row_of, uniform, sampling)
    members = _by_chunk(row_of, num_rows, size)
    parts = []
    for start, own in zip(range(0, num_rows, size), members, strict=True):
        rows = None if row_of is None else row_of[own] - start
        parts.append(_draw(logits[start : start + size], rows, uniform[own], sampling))
    tokens, logprobs = (torch.cat(columns) for columns in zip(*parts, strict=True))
    if row_of is not None:
        back = torch.cat(members).argsort()
        tokens, logprobs = tokens[back], logprobs[back]
    return Drawn(tokens, logprobs)


def draw_mixed(
    logits: Tensor,
    row_of: Tensor | None,
    uniform: Tensor,
    samplings: Sequence[Sampling],
    sampling_of: npt.NDArray[np.int64],
) -> Drawn:
    """`draw` for rollouts that are sampled in different ways; `sampling_of` [B] is each one's place in `samplings`.

    Those that differ only in how a completion ends are drawn together, and drawing all together costs nothing.

    Example:
        >>> ways, logits = [Sampling(), Sampling(top_k=1)], torch.tensor([[0.0, 0.1]])
        >>> zeros = torch.zeros(2, dtype=torch.int64)
        >>> draw_mixed(logits, zeros, torch.zeros(2).double(), ways, np.array([0, 1])).tokens
        tensor([0, 1])
    """
    ways = {sampling.shape: sampling for sampling in samplings}
    if len(ways) == 1:
        return draw(logits, row_of, uniform, samplings[0])
    if row_of is None:
        row_of = torch.arange(len(logits), device=logits.device)
    tokens, logprobs = torch.empty_like(row_of), uniform.new_empty(len(row_of), dtype=torch.float32)
    for shape, sampling in ways.items():
        is_member = np.array([other.shape == shape for other in samplings])[sampling_of]
        members = torch.from_numpy(np.flatnonzero(is_member)).to(logits.device)
        is_used = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        is_used[row_of[members]] = True
        place_of_row = is_used.cumsum(0) - 1
        drawn = draw(logits[is_used], place_of_row[row_of[members]], uniform[members], sampling)
        tokens[members], logprobs[members] = drawn
    return Drawn(tokens, logprobs)


def filtered_logprobs(logits: Tensor, sampling: Sampling) -> Tensor:
    """The log-probabilities that tokens are drawn from, -inf where filtered out: [R, V] -> [R, V] float32."""
    scaled = logits.float() if sampling.temperature == 1 else logits.float() / sampling.temperature
    logprobs = torch.log_softmax(scaled, dim=-1)
    if 0 < sampling.top_k < logits.shape[1]:
        threshold = logprobs.topk(sampling.top_k, dim=-1).values[:, -1:]
        logprobs = _keep(logprobs, logprobs >= threshold)
    if sampling.top_p < 1:
        logprobs = _keep(logprobs, _nucleus(logprobs, sampling.top_p))
    if sampling.min_p > 0:
        cutoff = logprobs.amax(dim=-1, keepdim=True) + math.log(sampling.min_p)
        logprobs = _keep(logprobs, logprobs >= cutoff)
    return logprobs


def _draw(logits: Tensor, row_of: Tensor | None, uniform: Tensor, sampling: Sampling) -> Drawn:
    logprobs = filtered_logprobs(logits, sampling)  # [R, V]
    tokens = _search(logprobs.exp().cumsum(dim=-1, dtype=torch.float64), row_of, uniform)
    chosen = logprobs.gather(1, tokens[:, None])[:, 0] if row_of is None else logprobs[row_of, tokens]
    tokens.masked_fill_(chosen.isnan(), 0)  # log_softmax makes every number of a broken row NaN
    return Drawn(tokens, chosen)


def _by_chunk(row_of: Tensor | None, num_rows: int, size: int) -> list[Any]:
    """Which rollouts draw from each chunk of `size` rows: an index, or a slice where each has its own row.

    The host has to know how many they are, so it looks at the rows once and not once per chunk.
    """
    starts = range(0, num_rows, size)
    if row_of is None:
        return [slice(start, start + size) for start in starts]
    ordered, order = row_of.cpu().sort(stable=True)
    ends = torch.searchsorted(ordered, torch.tensor([*starts, num_rows])).tolist()
    order = order.to(row_of.device)
    return [order[first:end] for first, end in pairwise(ends)]


def _search(cumulative: Tensor, row_of: Tensor | None, uniform: Tensor) -> Tensor:
    """The first token of each rollout's row whose cumulative sum is above its share of the row's: [R, V] -> [B].

    A uniform number is at most 1 - 2**-53, so its share of a sum is below that sum after rounding too, and a token of
    probability 0 never wins.
    """
    vocabulary = cumulative.shape[1]
    if row_of is None:
        found = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)[:, 0]
        return found.clamp_(max=vocabulary - 1)  # only NaN ends beyond
    if len(row_of) * vocabulary <= _COPIED_ELEMENTS:
        return _search(cumulative.index_select(0, row_of), None, uniform)
    targets = uniform * cumulative[:, -1].index_select(0, row_of)
    sums = cumulative.view(-1)
    first = row_of * vocabulary
    place, left = first.clone(), vocabulary
    while left > 1:
        half = left // 2
        is_beyond = sums[half - 1 :].index_select(0, place) <= targets
        place.add_(is_beyond, alpha=half)
        left -= half
    return place.sub_(first)


def _nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    """The likeliest tokens up to and including the one that reaches top_p; ties go by token id."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(dim=-1, dtype=torch.float64) - ordered.exp()
    return torch.zeros_like(logprobs, dtype=torch.bool).scatter_(-1, order, before < top_p * (1 - _ROUNDING))


def _keep(logprobs: Tensor, mask: Tensor) -> Tensor:
    return torch.log_softmax(logprobs.masked_fill(~mask, -torch.inf), dim=-1)
