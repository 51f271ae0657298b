"""Rows gathered more than once: their gradients are summed in float32 at least, whatever type the rows have.

A prompt that stands once per group is read by all its completions, so its gradient is a sum over them. In 16 bits such
a sum would lose small shares; on a GPU, which adds in no fixed order, the loss would differ from run to run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from podsrl.update.logprobs import exact_dtype
from podsrl.update.packed.layout import Block, Layout


def gather_rows(states: Tensor, places: Tensor) -> Tensor:
    """states [N, ·] at places [n] int64 -> [n, ·], with gradient."""
    rows: Tensor = _Rows.apply(states, places)  # type: ignore[no-untyped-call]  # torch's
    return rows


def gather_blocks(states: Tensor, layout: Layout, *, with_prompts: bool) -> tuple[Tensor, ...]:
    """states [N, H, D] -> [R, L, H, D] of each block, or [R, C + L, H, D] with the prompts before; with gradient."""
    blocks: tuple[Tensor, ...] = _Blocks.apply(states, layout, with_prompts)  # type: ignore[no-untyped-call]  # torch's
    return blocks


def take(states: Tensor, places: Tensor) -> Tensor:
    """[N, H, D], [R, L] -> [R, L, H, D]."""
    return states.index_select(0, places.flatten()).view(*places.shape, *states.shape[1:])


def key_places(block: Block) -> Tensor:
    """[R, C + L] int64: what a block's segments see."""
    return block.places if block.keys is None else block.keys


def scatter(results: list[Tensor], layout: Layout) -> Tensor:
    """What the blocks gave, flattened, back in the row; zeros for fillers."""
    return torch.cat([*results, results[0].new_zeros(1, *results[0].shape[1:])]).index_select(0, layout.where)


class Sums:
    """The gradient of states [N, H, D], from those of the rows that blocks gathered from them."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._own: list[Tensor] = []
        self._prompts: Tensor | None = None

    def add(self, block: Block, gradient: Tensor) -> None:
        """One block's, [R, L, H, D] or [R, C + L, H, D]; the blocks in their order."""
        columns = gradient.shape[1] - block.places.shape[1]
        self._own.append(gradient[:, columns:].flatten(0, 1))
        if block.prompt is None or not columns:
            return
        dtype = exact_dtype(gradient.dtype)
        if self._prompts is None:
            self._prompts = gradient.new_zeros(*self._layout.prompt_table, *gradient.shape[2:], dtype=dtype)
        self._prompts[:, :columns].index_add_(0, block.prompt, gradient[:, :columns].to(dtype))

    def total(self) -> Tensor:
        """[N, H, D] of all blocks."""
        gradient, cells = scatter(self._own, self._layout), self._layout.prompt_cells
        if self._prompts is not None and cells is not None:
            gradient[: len(cells)] += self._prompts.flatten(0, 1).index_select(0, cells)
        return gradient


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.num_places = len(states)
        return states.index_select(0, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (places,), dtype = ctx.saved_tensors, exact_dtype(gradient.dtype)
        total = gradient.new_zeros(ctx.num_places, *gradient.shape[1:], dtype=dtype)
        return total.index_add_(0, places, gradient.to(dtype)).to(gradient.dtype), None


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, layout: Layout, with_prompts: bool) -> tuple[Tensor, ...]:
        ctx.layout = layout
        return tuple(take(states, key_places(block) if with_prompts else block.places) for block in layout.blocks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        sums = Sums(ctx.layout)
        for block, gradient in zip(ctx.layout.blocks, gradients, strict=True):
            sums.add(block, gradient)
        return sums.total(), None, None
