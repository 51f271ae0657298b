"""Rows of the pool copied or exchanged, with as little set aside for it as the account has room for.

Blocks are [tensors, rows, kv_heads, capacity, head_dim]. A copy of one row goes straight from its place to the other,
all tensors at once; an index over rows makes a copy between, but is one operation for many rows. On a CPU an operation
costs 5 µs beside its bytes, so the index is for many small rows; on a device it is always the index.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from podsrl.generate.engine.kv_account import Account
from podsrl.generate.engine.transfer import to_device

_MANY_ROWS, _SMALL_ROW_BYTES = 16, 1 << 16
"""On a CPU more rows than this, each smaller than this, are copied by an index."""
_PIECE_BYTES = 16 << 20
"""Set aside at once, at most."""


def copy_rows(
    sources_of: Sequence[Tensor],
    targets_in: Sequence[Tensor],
    sources: Tensor,
    targets: Tensor,
    length: int,
    account: Account,
) -> None:
    """Copy the first `length` tokens of rows `sources` to rows `targets`, [K] int64 each, in host memory.

    Args:
        sources_of: blocks that are read.
        targets_in: blocks that are written, of the same shapes; perhaps the same blocks.
        sources: may repeat.
        targets: no row twice, none of the sources where the blocks are the same.
        length: tokens.
        account: pays for what is set aside.
    """
    places = _on_device(targets_in, sources, targets)
    for source, target in zip(sources_of, targets_in, strict=True):
        size = _rows_at_once(target, len(sources), length, account)
        if size > 0:
            _by_index(source, target, *places, length, size, account)
            continue
        for i, j in zip(sources.tolist(), targets.tolist(), strict=True):
            target[:, j, :, :length].copy_(source[:, i, :, :length])


def swap_rows(blocks: Sequence[Tensor], first: Tensor, second: Tensor, length: int, account: Account) -> None:
    """Let rows `first` and `second` ([K] int64 in host memory, no row twice) change places, up to `length` tokens."""
    pairs = torch.stack([first, second], dim=1)  # an index takes both rows of a pair, or none
    places = _on_device(blocks, pairs.flip(1).view(-1), pairs.view(-1))
    for block in blocks:
        size = _rows_at_once(block, len(places[0]), length, account) // 2 * 2
        if size > 0:
            _by_index(block, block, *places, length, size, account)
            continue
        for i, j in pairs.tolist():
            _swap(block[:, i, :, :length], block[:, j, :, :length], account)


def _on_device(blocks: Sequence[Tensor], sources: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    device = blocks[0].device
    if device.type == "cpu":
        return sources, targets
    sent, received = to_device(device, sources.numpy(), targets.numpy())
    return sent, received


def _rows_at_once(block: Tensor, num_rows: int, length: int, account: Account) -> int:
    """How many rows an index takes at a time; 0: they go one by one."""
    row_bytes = block[:, 0, :, :length].nbytes
    budget = _PIECE_BYTES if account.room is None else min(_PIECE_BYTES, account.room)
    if not block.is_cpu:
        return min(num_rows, budget // row_bytes)
    size = min(num_rows, budget // (row_bytes // len(block)))
    return size if size > _MANY_ROWS and row_bytes < _SMALL_ROW_BYTES else 0


def _by_index(
    source: Tensor, target: Tensor, sources: Tensor, targets: Tensor, length: int, size: int, account: Account
) -> None:
    """On a CPU one tensor after the other, which stays in its caches; elsewhere all at once."""
    pairs = list(zip(source, target, strict=True)) if target.is_cpu else [(source, target)]
    dim = 0 if target.is_cpu else 1
    pieces = list(zip(torch.split(sources, size), torch.split(targets, size), strict=True))
    aside = len(pieces[0][0]) * pairs[0][1].select(dim, 0)[..., :length, :].nbytes
    with account.lent(aside):
        for other, own in pairs:
            read_from, written_to = other[..., :length, :], own[..., :length, :]
            for read, written in pieces:
                written_to.index_copy_(dim, written, read_from.index_select(dim, read))


def _swap(one: Tensor, other: Tensor, account: Account) -> None:
    """Two rows [tensors, kv_heads, length, head_dim], a token at a time where the account has no room for more."""
    length = one.shape[2]
    size = length if account.room is None else max(1, min(length, account.room // (one.nbytes // length)))
    for start in range(0, length, size):
        mine, yours = one[:, :, start : start + size], other[:, :, start : start + size]
        with account.lent(mine.nbytes):
            saved = mine.clone()
            mine.copy_(yours)
            yours.copy_(saved)
            del saved
