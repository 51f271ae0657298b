"""The keys and values of all rows: row r's token at position p lies at [r, :, p] of every layer.

Rows are left-aligned and need not have the same length: each writes at its own position, and what lies behind it is
never attended to. All tensors of one shape lie in one block, so that a row is copied for all layers at once. A block
that is large enough for other rows of another length is divided anew in place (kv_moves.py). The pool does not know
which sequence a row belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.generate.engine.kv_account import Account
from podsrl.generate.engine.kv_moves import copy_rows, relay, swap_rows

_CAPACITY_STEP = 16
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
        """Of tensors [S, kv_heads, length, head_dim], one per layer."""
        shapes = [tuple((x.shape[1], x.shape[3]) for x in tensors) for tensors in (keys, values)]
        return cls(keys=shapes[0], values=shapes[1], dtype=keys[0].dtype, device=keys[0].device)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        return sum(heads * dim for heads, dim in self.keys + self.values) * self.dtype.itemsize

    @property
    def places(self) -> dict[Shape, list[Place]]:
        """The tensors of each shape, in the order of its block; a layer's values follow its keys."""
        places: dict[Shape, list[Place]] = {}
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            places.setdefault(keys, []).append((layer, False))
            places.setdefault(values, []).append((layer, True))
        return places


@dataclass(slots=True, eq=False)
class SavedRow:
    """A copy of one row's first tokens."""

    blocks: list[Tensor]
    """For each block of the pool [tensors, kv_heads, length, head_dim]."""
    logits: Tensor
    """[V] after the last token."""
    hidden: Tensor
    """[D] of the last token."""

    @property
    def num_bytes(self) -> int:
        return sum(each.nbytes for each in (*self.blocks, self.logits, self.hidden))


class KVPool:
    """Keys and values of all rows. `keys[l]` and `values[l]` are [rows, kv_heads, capacity, head_dim].

    `max_rows` and `max_capacity` (tokens per row) will never be exceeded, as far as they are known. Rows times capacity
    never exceed `max_tokens`; None: no bound. The account is by default one of its own, without a bound.

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
        account: Account | None = None,
    ) -> None:
        self.layout = layout
        self.max_rows, self.max_capacity, self.max_tokens = max_rows, max_capacity, max_tokens
        self.account = account or Account()
        self.num_tokens = 0
        """Tokens that the memory holds: at least rows times capacity."""
        self._places = layout.places
        self.release()

    @property
    def device(self) -> torch.device:
        return self.layout.device

    @property
    def num_bytes(self) -> int:
        """Bytes now held."""
        return self.row_bytes(self.num_tokens)

    def row_bytes(self, length: int) -> int:
        """Bytes that one row of `length` tokens takes."""
        return length * self.layout.token_bytes

    @property
    def place(self) -> tuple[int, int, int]:
        """Where a pool of one block is: its address, its capacity, and the tokens that each of its tensors holds."""
        (store,) = self._stores
        return store.data_ptr(), self.capacity, self.num_tokens

    def reserve(self, rows: int, capacity: int) -> None:
        """Make room for `rows` rows of `capacity` tokens, keeping what lies there; new places hold numbers of any kind.

        What must grow grows by half where the bounds allow it, so that growing one by one costs little. Without
        `max_tokens` old and new memory, held at once, are at most half more than what will ever be needed. Under it
        longer rows may have to be fewer: those behind the first `rows` are given up. UsageError: `rows` times
        `capacity` exceeds `max_tokens`.
        """
        if rows <= self.rows and capacity <= self.capacity:
            return
        rows, capacity = self._shape(rows, capacity)
        if rows * capacity > self.num_tokens:
            self._move(rows * capacity, rows, capacity)
            return
        kept = min(rows, self.rows)
        self._clean(rows * capacity)
        for (heads, dim), store in zip(self._places, self._stores, strict=True):
            relay(store, kept * heads, self.capacity * dim, capacity * dim, self.account)
        self._divide(rows, capacity)

    def hold(self, num_tokens: int) -> None:
        """Take memory for so many tokens (rows times capacity) at once, so that it need not grow later.

        Growing holds old and new for a moment: what is bounded is held from the start.
        """
        if num_tokens > self.num_tokens:
            self._move(num_tokens, self.rows, self.capacity)

    def release(self) -> None:
        """Give all memory back; what lay there is lost."""
        self.account.give(self.num_bytes)
        self.num_tokens = 0
        self._num_clean = 0  # of these tokens the first so many have been used, and are numbers
        self._stores = [self._empty(shape, 0) for shape in self._places]
        self._divide(0, 0)

    def copy_rows(self, sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first `length` tokens of rows over other rows, [K] int64 in host memory; a source may repeat."""
        copy_rows(self.blocks, self.blocks, sources, targets, length, self.account)

    def restore_row(self, saved: SavedRow, row: int) -> None:
        """Write a copy into a row."""
        for block, copy in zip(self.blocks, saved.blocks, strict=True):
            block[:, row, :, : copy.shape[2]] = copy

    def can_swap(self) -> bool:
        """Whether the bound leaves room for what `swap_rows` sets aside: one token, at least."""
        room = self.account.room
        return room is None or room >= self.layout.token_bytes

    def swap_rows(self, first: Tensor, second: Tensor, length: int) -> None:
        """Let rows `first` and `second`, [K] int64 in host memory and no row twice, change places up to `length`."""
        swap_rows(self.blocks, first, second, length, self.account)

    def clear_rows(self, rows: Tensor) -> None:
        """Zero rows [K] (int64) that hold NaN or infinity, before they are used again.

        Attention gives masked positions the weight 0, and 0 times NaN is NaN.
        """
        for block in self.blocks:
            block.index_fill_(1, rows, 0)

    def line_index(self, positions: Tensor) -> Tensor:
        """Where each row's token at `positions` [R] goes in `lines[l]`: keys' heads, values', [R * 2 * kv_heads]."""
        return (self._starts[: len(positions)] + positions[:, None]).view(-1)

    def _shape(self, rows: int, capacity: int) -> tuple[int, int]:
        """The rows and the capacity to grow to, given those that are needed: half more, within the bounds.

        Examples, from 4 rows of 32 tokens:

        - 5 rows are needed, and no bound is known: 6 rows (half more than 4) of 32 tokens.
        - Capacity 33 is needed: 4 rows of 48 tokens (half more than 32, in steps of 16).
        - Capacity 33 is needed, with `max_capacity` = 90: 48 is more than half of 90, so 4 rows of 90. This keeps old
          and new memory together at most half above what is ever needed.
        - Capacity 33 is needed, with `max_tokens` = 180: 4 rows of 48 would take 192, so the capacity is 180 / 4 = 45.
        """
        if self.max_tokens is not None and rows * capacity > self.max_tokens:
            raise UsageError(
                f"{rows} rows of {capacity} tokens do not fit in key-value memory of {self.max_tokens} tokens: raise "
                "kv_cache_bytes, or use fewer num_slots or a shorter max_new_tokens"
            )
        wide = self.rows if rows <= self.rows else self._bounded(rows, self.rows * 3 // 2, self.max_rows)
        long = self.capacity
        if capacity > self.capacity:
            steps = -(-max(capacity, self.capacity * 3 // 2) // _CAPACITY_STEP)
            long = self._bounded(capacity, steps * _CAPACITY_STEP, self.max_capacity)
        if self.max_tokens is None or wide * long <= self.max_tokens:
            return wide, long
        long = max(capacity, min(long, self.max_tokens // rows))
        return max(rows, min(wide, self.max_tokens // long)), long

    def _bounded(self, needed: int, wish: int, most: int | None) -> int:
        """`wish`; or all of `most`, where the wish is above half of it and growing would hold old and new at once.

        Arrivals may need more than `most`, which was known before they came: then the wish.
        """
        wish = max(needed, wish)
        if most is None or needed > most or (self.max_tokens is not None and wish <= most) or 2 * wish <= most:
            return wish
        return max(needed, most)

    def _move(self, num_tokens: int, rows: int, capacity: int) -> None:
        """Move the rows into new memory; the old is held until all is copied."""
        kept, length = min(rows, self.rows), min(capacity, self.capacity)
        old, old_bytes = self.blocks, self.num_bytes
        self.account.take(self.row_bytes(num_tokens))
        try:
            self._stores = [self._empty(shape, num_tokens) for shape in self._places]
        except BaseException:  # the device has no more
            self.account.give(self.row_bytes(num_tokens))
            raise
        self.num_tokens, self._num_clean = num_tokens, 0
        self._clean(rows * capacity)
        self._divide(rows, capacity)
        for block, other in zip(self.blocks, old, strict=True):
            block[:, :kept, :, :length] = other[:, :kept, :, :length]
        self.account.give(old_bytes)

    def _empty(self, shape: Shape, num_tokens: int) -> Tensor:
        heads, dim = shape
        size = (len(self._places[shape]), num_tokens * heads * dim)
        with torch.inference_mode(False):  # memory made under inference mode could not be written outside of it
            return torch.empty(size, dtype=self.layout.dtype, device=self.layout.device)

    def _clean(self, num_tokens: int) -> None:
        """Zero memory that is used for the first time: what lies behind a row must be numbers, see `clear_rows`."""
        for (heads, dim), store in zip(self._places, self._stores, strict=True):
            store[:, self._num_clean * heads * dim : num_tokens * heads * dim].zero_()
        self._num_clean = max(self._num_clean, num_tokens)

    def _divide(self, rows: int, capacity: int) -> None:
        """View the memory as rows of this capacity, without moving anything.

        Example: 2 layers whose keys and values all have 2 heads of width 8 are one shape, hence one store of 4 tensors.
        For 3 rows of capacity 16 the first 3 * 2 * 16 * 8 = 768 numbers of each tensor become a block
        [4, 3, 2, 16, 8]; its entries are layer 0's keys and values, then layer 1's. A *line* is one head of one token:
        `lines[0]` is [2 * tokens * 2, 8], and row r's key of head h at position p is its line (2 * r + h) * 16 + p.
        The line of the value is as far behind it as the whole store has lines per tensor, num_tokens * 2.
        """
        self.rows, self.capacity = rows, capacity
        self.blocks: list[Tensor] = []
        """For each shape [tensors, rows, kv_heads, capacity, head_dim], in the order of `Layout.places`."""
        for (heads, dim), store in zip(self._places, self._stores, strict=True):
            size = rows * heads * capacity * dim
            self.blocks.append(store[:, :size].view(len(store), rows, heads, capacity, dim))
        pairs = zip(self._places.values(), self.blocks, strict=True)
        views = {place: view for places, block in pairs for place, view in zip(places, block, strict=True)}
        self.keys = [views[layer, False] for layer in range(len(self.layout.keys))]
        self.values = [views[layer, True] for layer in range(len(self.layout.values))]
        self.lines: list[Tensor] = []
        """For each layer [2 * tokens * kv_heads, head_dim], keys before values; none where shapes differ."""
        if len(self.blocks) == 1:
            (heads, dim), store = next(iter(self._places)), self._stores[0]
            self.lines = [store[2 * i : 2 * i + 2].view(-1, dim) for i in range(len(self.keys))]
            starts = torch.arange(rows * heads, device=self.device).view(rows, heads) * capacity
            self._starts = torch.cat([starts, starts + self.num_tokens * heads], dim=1)
