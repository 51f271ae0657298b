"""The key-value memory of the rows being generated: row r's token at position p lies at [r, :, p] of every layer.

Rows are left-aligned and need not have the same length: each writes at its own position, and what lies behind it is
never attended to. All tensors of one shape lie in one block, so that a row is copied for all layers at once. What is
left out on purpose: which row belongs to whom; the engine knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from podsrl.errors import UsageError

_CAPACITY_STEP = 16
_MANY_ROWS, _SMALL_ROW_BYTES = 16, 1 << 16
"""A copy of one row costs 5 µs beside its bytes; an index over rows moves every byte twice."""
"""Capacities are multiples of this, so that rows that grow token by token seldom need new memory."""

Shape = tuple[int, int]
"""(kv_heads, head_dim)."""
Place = tuple[int, bool]
"""(layer, whether its values): one tensor of the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What one token takes in every layer.

    Example:
        >>> Layout(keys=((2, 8),), values=((2, 8),), dtype=torch.float32, device=torch.device("cpu")).token_bytes
        128
    """

    keys: tuple[Shape, ...]
    """Of each layer's keys."""
    values: tuple[Shape, ...]
    """Of each layer's values."""
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, keys: Sequence[Tensor], values: Sequence[Tensor]) -> Layout:
        """Of tensors [S, kv_heads, length, head_dim], one a layer."""
        shapes = [tuple((x.shape[1], x.shape[3]) for x in tensors) for tensors in (keys, values)]
        return cls(keys=shapes[0], values=shapes[1], dtype=keys[0].dtype, device=keys[0].device)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        return sum(heads * dim for heads, dim in self.keys + self.values) * self.dtype.itemsize

    @property
    def places(self) -> dict[Shape, list[Place]]:
        """The tensors of each shape, in the order of their block; a layer's values follow its keys."""
        places: dict[Shape, list[Place]] = {}
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            places.setdefault(keys, []).append((layer, False))
            places.setdefault(values, []).append((layer, True))
        return places

    def pack(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
        """Lay tensors [S, kv_heads, length, head_dim], one a layer, into a block a shape, [tensors, S, ...]."""
        return [
            torch.stack([(values if is_values else keys)[layer] for layer, is_values in places])
            for places in self.places.values()
        ]


class KVPool:
    """Keys and values of all rows. `keys[l]` and `values[l]` are [rows, kv_heads, capacity, head_dim].

    Args:
        layout: of the model (`Forward.layout`).
        max_rows: rows that will ever be needed; None: not known.
        max_capacity: tokens a row that will ever be needed; None: not known.
        max_tokens: rows times capacity never exceed it; None: no bound.

    Example:
        >>> layout = Layout(keys=((2, 8),), values=((2, 8),), dtype=torch.float32, device=torch.device("cpu"))
        >>> pool = KVPool(layout)
        >>> pool.reserve(rows=3, capacity=16)
        >>> pool.keys[0].shape, pool.num_bytes
        (torch.Size([3, 2, 16, 8]), 6144)
    """

    def __init__(
        self,
        layout: Layout,
        *,
        max_rows: int | None = None,
        max_capacity: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.layout = layout
        self.max_rows, self.max_capacity, self.max_tokens = max_rows, max_capacity, max_tokens
        self.rows = 0
        self.capacity = 0
        self._places = layout.places
        self._set_blocks([self._zeros(shape, 0, 0) for shape in self._places])

    @property
    def device(self) -> torch.device:
        return self.layout.device

    @property
    def num_bytes(self) -> int:
        """Bytes now held."""
        return self.rows * self.row_bytes(self.capacity)

    def row_bytes(self, length: int) -> int:
        """Bytes that one row of `length` tokens takes."""
        return length * self.layout.token_bytes

    def reserve(self, rows: int, capacity: int) -> None:
        """Make room for `rows` rows of `capacity` tokens, keeping what lies there.

        What must grow grows by half where the bounds allow it, so that growing one by one costs little. Under
        `max_tokens` longer rows may have to be fewer: those behind the first `rows` are given up.

        Raises:
            UsageError: `rows` times `capacity` exceeds `max_tokens`.
        """
        if rows <= self.rows and capacity <= self.capacity:
            return
        rows, capacity = self._shape(rows, capacity)
        kept, length = min(rows, self.rows), min(capacity, self.capacity)
        blocks = [self._zeros(shape, rows, capacity) for shape in self._places]
        for block, old in zip(blocks, self.blocks, strict=True):
            block[:, :kept, :, :length] = old[:, :kept, :, :length]
        self.rows, self.capacity = rows, capacity
        self._set_blocks(blocks)

    def copy_rows(self, sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first `length` tokens of rows over other rows.

        Args:
            sources: [K] int64; may repeat.
            targets: [K] int64, none of them a source.
            length: tokens.
        """
        for block in self.blocks:
            _copy_rows(block, sources, block, targets, length)

    def swap_rows(self, first: Tensor, second: Tensor, length: int) -> None:
        """Let rows `first` [K] and `second` [K] (int64, no row twice) change places, up to `length` tokens."""
        for block in self.blocks:
            saved = block[:, first, :, :length]
            _copy_rows(block, second, block, first, length)
            _copy_rows(saved, torch.arange(len(first), device=first.device), block, second, length)

    def fill_rows(self, blocks: Sequence[Tensor], sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first `length` tokens of rows that were made elsewhere.

        Args:
            blocks: of `Layout.pack`, S rows.
            sources: [K] int64, which of the S goes to each row; may repeat.
            targets: [K] int64, rows of this pool.
            length: tokens.
        """
        for block, other in zip(self.blocks, blocks, strict=True):
            _copy_rows(other, sources, block, targets, length)

    def clear_rows(self, rows: Tensor) -> None:
        """Zero rows [K] (int64) that hold NaN or infinity, before they are used again.

        Attention gives masked positions the weight 0, and 0 times NaN is NaN.
        """
        for block in self.blocks:
            block.index_fill_(1, rows, 0)

    def line_index(self, positions: Tensor) -> Tensor:
        """Where each row's token goes in `lines[l]`: its keys' heads, then its values', [R * 2 * kv_heads] int64.

        Args:
            positions: [R] int64, of rows 0 .. R - 1.
        """
        return (self._starts[: len(positions)] + positions[:, None]).view(-1)

    def _shape(self, rows: int, capacity: int) -> tuple[int, int]:
        """The size to grow to: generous, within the bounds."""
        if self.max_tokens is not None and rows * capacity > self.max_tokens:
            raise UsageError(
                f"{rows} rows of {capacity} tokens do not fit in key-value memory of {self.max_tokens} tokens: raise "
                "kv_cache_bytes, or use fewer num_slots or a shorter max_new_tokens"
            )
        wide = self.rows if rows <= self.rows else _bounded(rows, self.rows * 3 // 2, self.max_rows)
        long = self.capacity
        if capacity > self.capacity:
            steps = -(-max(capacity, self.capacity * 3 // 2) // _CAPACITY_STEP)
            long = _bounded(capacity, steps * _CAPACITY_STEP, self.max_capacity)
        if self.max_tokens is None or wide * long <= self.max_tokens:
            return wide, long
        long = max(capacity, min(long, self.max_tokens // rows))
        return max(rows, min(wide, self.max_tokens // long)), long

    def _zeros(self, shape: Shape, rows: int, capacity: int) -> Tensor:
        """Not `empty`: what lies behind a row must be numbers, see `clear_rows`."""
        heads, dim = shape
        size = (len(self._places[shape]), rows, heads, capacity, dim)
        with torch.inference_mode(False):  # memory made under inference mode could not be written outside of it
            return torch.zeros(size, dtype=self.layout.dtype, device=self.layout.device)

    def _set_blocks(self, blocks: list[Tensor]) -> None:
        self.blocks = blocks
        """For each shape [tensors, rows, kv_heads, capacity, head_dim], as `Layout.pack` orders them."""
        pairs = zip(self._places.values(), blocks, strict=True)
        views = {place: view for places, block in pairs for place, view in zip(places, block, strict=True)}
        self.keys = [views[layer, False] for layer in range(len(self.layout.keys))]
        self.values = [views[layer, True] for layer in range(len(self.layout.values))]
        self.lines: list[Tensor] = []
        """For each layer [2 * rows * kv_heads * capacity, head_dim], keys before values; none where shapes differ."""
        if len(blocks) == 1:
            (heads, dim), block = next(iter(self._places)), blocks[0]
            self.lines = [block[2 * i : 2 * i + 2].view(-1, dim) for i in range(len(self.keys))]
            starts = torch.arange(2 * self.rows * heads, device=self.device) * self.capacity
            self._starts = starts.view(2, self.rows, heads).transpose(0, 1).reshape(self.rows, 2 * heads).contiguous()


def _copy_rows(source: Tensor, sources: Tensor, target: Tensor, targets: Tensor, length: int) -> None:
    """On a CPU one copy a row, whole runs of memory, or for many small rows one index a layer: whichever is faster."""
    if not target.is_cpu:
        target[:, targets, :, :length] = source[:, sources, :, :length]
        return
    row_bytes = target[:, 0, :, :length].nbytes
    if len(sources) > _MANY_ROWS and row_bytes < _SMALL_ROW_BYTES:
        for own, other in zip(target, source, strict=True):
            own[:, :, :length].index_copy_(0, targets, other[:, :, :length].index_select(0, sources))
        return
    for i, j in zip(sources.tolist(), targets.tolist(), strict=True):
        target[:, j, :, :length].copy_(source[:, i, :, :length])


def _bounded(needed: int, wish: int, bound: int | None) -> int:
    return max(needed, wish if bound is None else min(wish, bound))
