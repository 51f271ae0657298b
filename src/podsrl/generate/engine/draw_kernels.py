"""The draw without filters on a GPU: two Triton kernels, which read the logits once and a little.

The cumulative distribution is inverted in two levels, by the same uniform number as elsewhere: sums of blocks of the
vocabulary find the block, and the sums within it find the token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096


def draw_unfiltered(
    logits: Tensor, row_of: Tensor | None, uniform: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """The tokens [B] and log-probabilities [B] of `sampler.draw` where nothing is filtered out."""
    with torch.cuda.device_of(logits):  # Triton starts kernels on the current device
        return _draw(logits.contiguous(), row_of, uniform, temperature)


def _draw(logits: Tensor, row_of: Tensor | None, uniform: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    rows, words = logits.shape
    blocks = triton.cdiv(words, _BLOCK)
    tops, sums = torch.empty(2, rows, blocks, dtype=torch.float32, device=logits.device)
    _sum_blocks[(rows, blocks)](logits, tops, sums, words, temperature, BLOCKS=blocks, BLOCK=_BLOCK, num_warps=8)
    tokens = torch.empty(len(uniform), dtype=torch.int64, device=logits.device)
    logprobs = torch.empty(len(uniform), dtype=torch.float32, device=logits.device)
    _pick[(len(uniform),)](
        logits,
        tops,
        sums,
        tokens if row_of is None else row_of,
        uniform,
        tokens,
        logprobs,
        words,
        temperature,
        HAS_OWN_ROWS=row_of is None,
        BLOCKS=blocks,
        PADDED=triton.next_power_of_2(blocks),
        BLOCK=_BLOCK,
        num_warps=8,
    )
    return tokens, logprobs


@triton.jit
def _scaled(logits, row, column, words, temperature):
    given = tl.load(logits + row * words + column, mask=column < words, other=float("-inf"))
    return given.to(tl.float32) / temperature


@triton.jit
def _sum_blocks(logits, tops, sums, words, temperature, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """The largest of each block, and the sum of the others' shares of it; NaN where a logit is NaN or infinite."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    x = _scaled(logits, row, block * BLOCK + tl.arange(0, BLOCK), words, temperature)
    top = tl.max(x, axis=0)
    is_broken = tl.max(((x != x) | (x == float("inf"))).to(tl.int32), axis=0) > 0
    total = tl.sum(tl.exp(x - tl.where(top == float("-inf"), 0.0, top)), axis=0)
    tl.store(tops + row * BLOCKS + block, top)
    tl.store(sums + row * BLOCKS + block, tl.where(is_broken, float("nan"), total))


@triton.jit
def _pick(
    logits,
    tops,
    sums,
    row_of,
    uniform,
    tokens,
    logprobs,
    words,
    temperature,
    HAS_OWN_ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rollout = tl.program_id(0).to(tl.int64)
    row = rollout
    if not HAS_OWN_ROWS:
        row = tl.load(row_of + rollout)
    block = tl.arange(0, PADDED)
    is_block = block < BLOCKS
    top = tl.load(tops + row * BLOCKS + block, mask=is_block, other=float("-inf"))
    share = tl.load(sums + row * BLOCKS + block, mask=is_block, other=0.0)
    largest = tl.max(top, axis=0)
    mass = tl.where(share == 0.0, 0.0, share * tl.exp(top - largest)).to(tl.float64)
    ends = tl.cumsum(mass, axis=0)
    total = tl.sum(mass, axis=0)
    target = tl.load(uniform + rollout) * total
    hit = tl.minimum(tl.sum((ends <= target).to(tl.int32), axis=0), BLOCKS - 1)
    before = tl.sum(tl.where(block == hit - 1, ends, 0.0), axis=0)
    place = tl.arange(0, BLOCK)
    x = _scaled(logits, row, hit * BLOCK + place, words, temperature)
    weights = tl.exp(x - largest)
    is_beyond = (tl.cumsum(weights.to(tl.float64), axis=0) > target - before) & (weights > 0)
    first = tl.min(tl.where(is_beyond, place, BLOCK), axis=0)
    last = tl.max(tl.where(weights > 0, place, 0), axis=0)  # where the two levels' sums differ by rounding
    chosen = tl.where(first == BLOCK, last, first)
    logit = tl.sum(tl.where(place == chosen, x, 0.0), axis=0)
    is_broken = (total != total) | (total <= 0.0)
    token = tl.where(is_broken, 0, hit * BLOCK + chosen)
    logprob = (logit - largest).to(tl.float64) - tl.log(tl.where(is_broken, 1.0, total))
    tl.store(tokens + rollout, token.to(tl.int64))
    tl.store(logprobs + rollout, tl.where(is_broken, float("nan"), logprob.to(tl.float32)))
