"""Attention over a row without padding: the one part of a model that has to know the layout.

The function is registered with transformers under a name of its own. The layout is a keyword argument of the model's
forward, so a forward that is repeated in the backward pass gets it too.

On a GPU 16 bits take FlashAttention's kernels (`flash.py`). Else every block is one call of torch's attention, in which
completions see [their prompt; themselves]. On a CPU the gradient is computed here: keys and values are gathered again
instead of kept, so a shared prompt lies in memory once, and the gradient of its many copies is summed block by block.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from podsrl.update.packed.flash import flash, runs_flash
from podsrl.update.packed.gather import Sums, gather_blocks, key_places, scatter, take
from podsrl.update.packed.layout import Block, Layout

NAME = "podsrl_packed"
"""Of the attention function, for transformers."""
KEYWORD = "packed_layout"
"""The argument of a model's forward that brings the layout."""

_cpu_flash: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_cpu_flash_backward: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


class Unsupported(Exception):
    """The model asks its attention for something that rows without padding cannot have."""


def register() -> None:
    """Register the function with transformers; repeated calls change nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, packed_attention)


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: query [1, H, N, D], key and value [1, H or fewer, N, D] -> [1, N, H, D].

    Raises:
        Unsupported: sliding windows, soft caps, sinks and the like.
    """
    layout = options.pop(KEYWORD)
    _check(module, attention_mask, options)
    q, k, v = (states.squeeze(0).transpose(0, 1) for states in (query, key, value))
    if query.is_cpu and dropout == 0 and _cpu_flash is not None and query.shape[-1] == value.shape[-1]:
        result: Tensor = _CpuAttention.apply(q, k, v, layout, scaling)  # type: ignore[no-untyped-call]  # torch's
    elif _is_for_flash(q, k, v, layout, dropout):
        assert layout.spans is not None
        result = flash(q, k, v, layout.spans, scaling)
    else:
        result = _any_attention(q, k, v, layout, scaling, dropout)
    return result.unsqueeze(0), None


def _is_for_flash(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> bool:
    if layout.spans is None or dropout != 0 or key.shape != value.shape or query.shape[-1] != key.shape[-1]:
        return False
    return runs_flash(query.device, query.dtype, query.shape[1], *key.shape[1:])


_HARMLESS = {"position_ids", "cache_position", "use_cache", "output_attentions", "output_hidden_states", "return_dict"}


def _check(module: Any, attention_mask: Tensor | None, options: dict[str, Any]) -> None:
    if attention_mask is not None or not getattr(module, "is_causal", True):
        raise Unsupported("its attention is more than causal")
    for name, value in options.items():
        if name not in _HARMLESS and value is not None and value is not False:
            raise Unsupported(f"its attention has a {name}")


def _any_attention(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, scaling: float | None, dropout: float
) -> Tensor:
    """[N, H, D] each -> [N, H, D], by operations that torch can differentiate."""
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = (states.repeat_interleave(repeats, 1) for states in (key, value))
    queries = gather_blocks(query, layout, with_prompts=False)
    keys, values = (gather_blocks(states, layout, with_prompts=True) for states in (key, value))
    results = []
    for block, *gathered in zip(layout.blocks, queries, keys, values, strict=True):
        mask = block.mask(query.dtype)
        q, k, v = (each.transpose(1, 2) for each in gathered)
        result = F.scaled_dot_product_attention(q, k, v, mask, dropout, mask is None, scale=scaling)
        results.append(result.transpose(1, 2).flatten(0, 1))
    return scatter(results, layout)


class _CpuAttention(torch.autograd.Function):
    """[N, H, D] queries, [N, K, D] keys and values -> [N, H, D]; K divides H."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: Layout, scaling: float | None) -> Tensor:
        results, weights = [], []
        for block in layout.blocks:
            mask = _full_mask(block, query.dtype)
            result, weight = _cpu_flash(
                *_gather(query, key, value, block), 0.0, mask is None, attn_mask=mask, scale=scaling
            )
            results.append(result.transpose(1, 2).flatten(0, 1))
            weights.append(weight)
        output = scatter(results, layout)
        ctx.save_for_backward(query, key, value, output, *weights)
        ctx.layout, ctx.scaling = layout, scaling
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of query, key and value, block by block.

        Example: the prompt p at place 0 is shared by the completions a (place 1) and b (place 2). The block of both
        completions has the keys [p a] and [p b], so its key gradient has p twice. `Sums` adds both to place 0, besides
        what the block of the prompt gave.
        """
        query, key, value, output, *weights = ctx.saved_tensors
        layout: Layout = ctx.layout
        query_sums, key_sums, value_sums = Sums(layout), Sums(layout), Sums(layout)
        for block, weight in zip(layout.blocks, weights, strict=True):
            mask = _full_mask(block, query.dtype)
            output_gradient = take(gradient, block.places)
            if block.ended is not None:  # padding of the block was gathered from place 0, whose gradient is not its own
                output_gradient = output_gradient.masked_fill_(block.ended, 0.0)
            of_query, of_key, of_value = _cpu_flash_backward(
                output_gradient.transpose(1, 2),
                *_gather(query, key, value, block),
                take(output, block.places).transpose(1, 2),
                weight,
                0.0,
                mask is None,
                attn_mask=mask,
                scale=ctx.scaling,
            )
            query_sums.add(block, of_query.transpose(1, 2))
            key_sums.add(block, of_key.transpose(1, 2))
            value_sums.add(block, of_value.transpose(1, 2))
        return query_sums.total(), key_sums.total(), value_sums.total(), None, None


def _gather(query: Tensor, key: Tensor, value: Tensor, block: Block) -> tuple[Tensor, Tensor, Tensor]:
    """[R, heads, length, D] of a block."""
    keys = key_places(block)
    q, k, v = take(query, block.places), take(key, keys), take(value, keys)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def _full_mask(block: Block, dtype: torch.dtype) -> Tensor | None:
    mask = block.mask(dtype)
    return None if mask is None else mask.expand(len(block.places), -1, -1, -1)
