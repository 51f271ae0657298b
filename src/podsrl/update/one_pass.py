"""Log-probs and entropies of chosen tokens by one pass over the head's logits each way: Triton kernels for a GPU.

Torch's operators read or write a table [n, V] in float32 some ten times, half of them again in the backward pass. Here
logits stay in the head's own type. They are read once, for sums in float32; the backward pass makes them again and
turns them into their own gradient in place.

Source: the sums follow a running maximum (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax").

n tokens, V words, D the width of the states.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from podsrl.lib.devices import is_device_error

_BLOCK = 4096
"""Words that a program reads at once."""
_WARPS = 8
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Of logits that the kernels know."""


def score(states: Tensor, weight: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Natural log-probs, with gradient, and entropies in nats, without: [n] float32 each.

    Args:
        states: [n, D] of one of `DTYPES`, on a GPU.
        weight: [V, D] of the output head, which has no bias.
        tokens: [n] int64, those that are scored.
        temperature: > 0; the logits are divided by it.
    """
    logprobs, entropies = _Score.apply(states, weight, tokens, temperature)
    return logprobs, entropies


@cache
def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """What keeps the kernels from logits of this type; None: nothing.

    They are tried once, beside torch's operators, on two blocks of made-up logits. A device that fails raises.
    """
    if dtype not in DTYPES:
        return f"the kernel is not for {dtype}"
    numbers = torch.arange(3 * 8 + 5000 * 8, device=device).mul(0.7).sin()
    tokens, above = torch.tensor([0, 4097, 4999], device=device), torch.tensor([1.0, -2.0, 0.5], device=device)
    results = []
    try:
        for function in (score, _plain):
            states, weight = (
                part.to(dtype).requires_grad_() for part in (numbers[:24].view(3, 8), numbers[24:].view(-1, 8))
            )
            with torch.enable_grad():
                logprobs, entropies = function(states, weight, tokens, 0.7)
            torch.autograd.backward(logprobs, above)
            results.append([each.detach().float() for each in (logprobs, entropies, states.grad, weight.grad)])  # type: ignore[union-attr]
    except Exception as error:  # whatever Triton raises without a driver or a compiler, or on a GPU it does not know
        if is_device_error(error):
            raise
        return f"the kernel fails here ({type(error).__name__}: {str(error).strip().partition(chr(10))[0][:100]})"
    bound = 1e-4 if dtype == torch.float32 else 0.05
    gaps = [(one - two).abs().max() / two.abs().max() for one, two in zip(*results, strict=True)]
    return None if all(gap < bound for gap in gaps) else "the kernel gives other numbers here"


def _plain(states: Tensor, weight: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    table = torch.log_softmax(F.linear(states, weight).float() / temperature, -1)
    return table.gather(1, tokens[:, None])[:, 0], -(table.exp() * table).sum(-1).detach()


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        logits = F.linear(states, weight)
        n, words = logits.shape
        logprobs, entropies, totals = (torch.empty(n, dtype=torch.float32, device=logits.device) for _ in range(3))
        with torch.cuda.device_of(logits):  # Triton starts kernels on the current device, as a backward pass does
            _sum_up[(n,)](
                logits, tokens, logprobs, entropies, totals, words, 1 / temperature, BLOCK=_BLOCK, num_warps=_WARPS
            )
        ctx.save_for_backward(states, weight, tokens, totals)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        states, weight, tokens, totals = ctx.saved_tensors
        logits = F.linear(states, weight)
        n, words = logits.shape
        grid = n, triton.cdiv(words, _BLOCK)
        factors = above / ctx.temperature  # contiguous, as the kernel reads it
        _to_gradient[grid](
            logits, tokens, totals, factors.contiguous(), words, 1 / ctx.temperature, BLOCK=_BLOCK, num_warps=_WARPS
        )
        of_states = logits @ weight if ctx.needs_input_grad[0] else None
        return of_states, logits.t() @ states if ctx.needs_input_grad[1] else None, None, None


@triton.jit
def _sum_up(logits, tokens, logprobs, entropies, totals, V, cold, BLOCK: tl.constexpr):
    """One row per program. totals := the logarithm of the sum of exp(logit · cold), lane by lane until the end."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    mass = tl.zeros([BLOCK], tl.float32)  # of exp(x - top)
    below = tl.zeros([BLOCK], tl.float32)  # of exp(x - top) · (x - top)
    for start in range(0, V, BLOCK):
        words = start + lanes
        x = tl.load(logits + row * V + words, mask=words < V, other=float("-inf")).to(tl.float32) * cold
        new = tl.maximum(top, x)
        fall = tl.where(top == float("-inf"), 0.0, top - new)  # nothing has been added to a lane at -inf
        gap = tl.where(x == float("-inf"), 0.0, x - new)  # an excluded word has no share
        share = tl.where(x == float("-inf"), 0.0, tl.exp(gap))
        below = (below + mass * fall) * tl.exp(fall) + share * gap
        mass = mass * tl.exp(fall) + share
        top = new
    most = tl.max(top, axis=0)
    fall = tl.where(top == float("-inf"), 0.0, top - most)
    total = tl.sum(mass * tl.exp(fall), axis=0)
    mean = tl.sum((below + mass * fall) * tl.exp(fall), axis=0) / total
    own = tl.load(logits + row * V + tl.load(tokens + row)).to(tl.float32) * cold
    tl.store(totals + row, most + tl.log(total))
    tl.store(logprobs + row, own - most - tl.log(total))
    tl.store(entropies + row, tl.log(total) - mean)


@triton.jit
def _to_gradient(logits, tokens, totals, factors, V, cold, BLOCK: tl.constexpr):
    """One block of a row per program: logits := factor · (1 at the row's token, else 0, minus the probability)."""
    row = tl.program_id(0).to(tl.int64)
    words = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row * V + words, mask=words < V, other=float("-inf")).to(tl.float32) * cold
    chosen = tl.where(words == tl.load(tokens + row), 1.0, 0.0)
    slope = tl.load(factors + row) * (chosen - tl.exp(x - tl.load(totals + row)))
    tl.store(logits + row * V + words, slope.to(logits.dtype.element_ty), mask=words < V)
