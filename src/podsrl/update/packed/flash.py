"""Attention of a row without padding by FlashAttention's kernels for sequences of different lengths, on a GPU.

Every segment sees itself by one call. Where prompts are shared, a second one lets all completions of a group, which
stand side by side, see their prompt. Nothing is gathered or masked. Both results are merged by their log-sum-exps.
Given the merged result and log-sum-exp, the kernels' own backward passes give the exact gradients, which add up.

Source: Dao 2023, FlashAttention-2, for the kernels; Liu et al. 2023, Ring Attention, for attention in parts.

N places in the row, n of them of prompts; H heads of queries, K of keys, D their width.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from podsrl.lib.devices import is_device_error
from podsrl.update.logprobs import exact_dtype
from podsrl.update.packed.layout import Array, Spans
from podsrl.update.transfer import move

_TOLERANCE = 0.05
"""Largest difference of the trial's results by the largest of them."""
_forward: Any = torch.ops.aten._flash_attention_forward
_backward: Any = torch.ops.aten._flash_attention_backward
"""The first gives the result [N, H, D], log-sum-exps [H, N] in float32, and two tensors that the second wants."""


def flash(query: Tensor, key: Tensor, value: Tensor, spans: Spans, scaling: float | None) -> Tensor:
    """[N, H, D] queries, [N, K, D] keys and values of 16 bits -> [N, H, D]; K divides H."""
    result: Tensor = _Flash.apply(query, key, value, spans, scaling)  # type: ignore[no-untyped-call]  # torch's
    return result


@cache
def runs_flash(device: torch.device, dtype: torch.dtype, heads: int, key_heads: int, width: int) -> bool:
    """Whether the kernels compute attention of such states. They are tried once; a GPU that fails in it raises."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    reason = _why_not(device, dtype, heads, key_heads, width)
    if reason is not None:
        warnings.warn(f"attention of rows without padding is by masked blocks, because {reason}", stacklevel=2)
    return reason is None


def _why_not(device: torch.device, dtype: torch.dtype, heads: int, key_heads: int, width: int) -> str | None:
    """What is wrong with the kernels, beside one dense masked product, at two prompts with two completions each."""
    prompts, lengths, owner = np.array([5, 3]), np.array([7, 1, 4, 9]), np.array([0, 0, 1, 1])
    spans, seen = move((Spans.of(prompts, lengths, owner), _seen(prompts, lengths, owner)), device)
    sizes = [(len(seen), count, width) for count in (heads, key_heads, key_heads, heads)]
    draws = torch.Generator().manual_seed(0)  # numbers with a pattern have gradients that cancel down to rounding
    *states, above = (torch.randn(size, generator=draws).to(device, dtype) for size in sizes)
    results, functions = [], list[tuple[Any, Any]]([(flash, spans), (_dense, seen)])
    try:
        for function, which in functions:
            leaves = [each.clone().requires_grad_() for each in states]
            with torch.enable_grad():
                output = function(*leaves, which, None)
            torch.autograd.backward(output, above)
            results.append([output.detach(), *(leaf.grad for leaf in leaves)])
    except Exception as error:  # arguments of another version, a width or a GPU that they do not know
        if is_device_error(error):
            raise
        return f"FlashAttention fails here ({type(error).__name__}: {str(error).strip().partition(chr(10))[0][:100]})"
    gaps = [(one - two).abs().max() / two.abs().max() for one, two in zip(*results, strict=True)]
    return None if all(gap < _TOLERANCE for gap in gaps) else "FlashAttention gives other numbers here"


def _seen(prompts: Array, lengths: Array, owner: Array) -> Tensor:
    """[N, N] bool: which keys each place of a row sees; the arguments are those of `Spans.of`."""
    whole = np.concatenate([prompts, lengths])
    segment = np.repeat(np.arange(len(whole)), whole)
    before = np.concatenate([np.full(len(prompts), -1), owner])[segment]
    own = (segment[:, None] == segment) & np.tri(len(segment), dtype=bool)
    return torch.from_numpy(own | (before[:, None] == segment))


def _dense(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, scaling: float | None) -> Tensor:
    """As `flash`, by one product of all places with all."""
    repeats = query.shape[1] // key.shape[1]
    keys, values = (each.repeat_interleave(repeats, 1).transpose(0, 1) for each in (key, value))
    return F.scaled_dot_product_attention(query.transpose(0, 1), keys, values, seen, scale=scaling).transpose(0, 1)


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, spans: Spans, scaling: float | None) -> Tensor:
        ends: tuple[Any, ...] = (spans.own, spans.own, spans.longest, spans.longest)
        output, sums, *kept = _forward(query, key, value, *ends, 0.0, True, False, scale=scaling)[:4]
        if spans.groups is not None:
            n, ends = spans.num_shared, (spans.groups, spans.prompts, spans.longest_group, spans.longest_prompt)
            parts = query[n:], key[:n], value[:n]
            before, more, *others = _forward(*parts, *ends, 0.0, False, False, scale=scaling)[:4]
            dtype = exact_dtype(query.dtype)
            share = torch.sigmoid(more - sums[:, n:]).t()[..., None].to(dtype)  # of the prompt, [N - n, H, 1]
            output[n:] = torch.lerp(output[n:].to(dtype), before.to(dtype), share)
            more = torch.logaddexp(sums[:, n:], more)
            sums[:, n:] = more
            kept += [more, *others]
        ctx.save_for_backward(query, key, value, output, sums, *kept)
        ctx.spans, ctx.scaling = spans, scaling
        return output  # type: ignore[no-any-return]  # aten's operators have no types

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, sums, *kept = ctx.saved_tensors
        spans: Spans = ctx.spans
        ends: tuple[Any, ...] = (spans.own, spans.own, spans.longest, spans.longest)
        of_query, of_key, of_value = _backward(
            gradient, query, key, value, output, sums, *ends, 0.0, True, *kept[:2], scale=ctx.scaling
        )
        if spans.groups is not None:
            n, (more, *others) = spans.num_shared, kept[2:]
            ends = spans.groups, spans.prompts, spans.longest_group, spans.longest_prompt
            parts = gradient[n:], query[n:], key[:n], value[:n], output[n:], more
            gradients = _backward(*parts, *ends, 0.0, False, *others, scale=ctx.scaling)
            for whole, part in zip((of_query[n:], of_key[:n], of_value[:n]), gradients, strict=True):
                whole += part
        return of_query, of_key, of_value, None, None
