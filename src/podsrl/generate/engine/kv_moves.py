"""Move keys and values within the pool, with as little temporary memory as the account has room for.

    copy_rows, swap_rows   whole rows; blocks are [tensors, rows, kv_heads, capacity, head_dim]
    relay                  all rows at once, when their capacity changes: lines move apart or together in place

A copy of one row goes straight from its place to the other, all tensors at once. An index over rows makes a temporary
copy, but is one operation for many rows. On a CPU an operation costs 5 µs beside its bytes, so the index is for many
small rows; on a device it is always the index.
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
"""Most temporary memory at once."""


def copy_rows(
    sources_of: Sequence[Tensor],
    targets_in: Sequence[Tensor],
    sources: Tensor,
    targets: Tensor,
    length: int,
    account: Account,
) -> None:
    """Copy the first `length` tokens of rows `sources` to rows `targets`, [K] int64 each, in host memory.

    The blocks `targets_in` have the shapes of `sources_of` and may be the same ones; then no target is a source. A
    source may repeat, a target may not. `account` counts the temporary memory.
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
    """How many rows an index moves at a time; 0: they move one by one."""
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


# --- lines of equal length move apart or together in place ---
#
# Line i goes from i times the old stride to i times the new one, so all move in one direction. Taken from the end that
# they move towards, a line never lands on one that has still to move. Several at once are one copy where their places
# before and after are disjoint; others are copied aside first where the account has room for it, and where it has none
# a line goes in pieces that do not overlap themselves.


def relay(store: Tensor, num_lines: int, old: int, new: int, account: Account) -> None:
    """Move the first `num_lines` lines from stride `old` to stride `new`, cut to the shorter of both.

    The same happens in each of the N entries of the store [N, numbers], which holds `num_lines` of the new stride.

    Example:
        >>> import torch
        >>> store = torch.tensor([[1, 2, 3, 4, 0, 0]])
        >>> relay(store, 2, 2, 3, Account())
        >>> store
        tensor([[1, 2, 3, 3, 4, 0]])
    """
    line_bytes = len(store) * min(old, new) * store.itemsize
    room = _ASIDE_BYTES if account.room is None else min(_ASIDE_BYTES, account.room)
    size = 0 if line_bytes == 0 else room // line_bytes
    if new > old:
        _apart(store, num_lines, old, new, size, account)
    elif new < old:
        _together(store, num_lines, old, new, size, account)


_ASIDE_BYTES = 1 << 20
"""Most temporary memory at once."""


def _apart(store: Tensor, num_lines: int, old: int, new: int, size: int, account: Account) -> None:
    end = num_lines
    while end > 1:  # line 0 stays
        free = -(-end * old // new)  # from here on the new places lie behind all old ones
        first = min(free, max(1, end - size))
        if first < end:
            _move(store, first, end, old, new, None if first == free else account)
        else:
            first = end - 1
            shift = first * (new - old)
            for stop in range(old, 0, -shift):
                _move_piece(store, first, old, new, max(0, stop - shift), stop)
        end = first


def _together(store: Tensor, num_lines: int, old: int, new: int, size: int, account: Account) -> None:
    first = 1
    while first < num_lines:
        free = min(num_lines, first * old // new)  # up to here the new places lie before all old ones
        end = max(free, min(num_lines, first + size))
        if end > first:
            _move(store, first, end, old, new, None if end == free else account)
        else:
            end, shift = first + 1, first * (old - new)
            for start in range(0, new, shift):
                _move_piece(store, first, old, new, start, min(new, start + shift))
        first = end


def _move(store: Tensor, first: int, end: int, old: int, new: int, account: Account | None) -> None:
    """Lines first .. end - 1; None: their old and new places are disjoint."""
    shape, length = (len(store), end - first), min(old, new)
    source = store[:, first * old : end * old].view(*shape, old)[:, :, :length]
    target = store[:, first * new : end * new].view(*shape, new)[:, :, :length]
    if account is None:
        target.copy_(source)
        return
    with account.lent(source.nbytes):
        target.copy_(source.clone())


def _move_piece(store: Tensor, line: int, old: int, new: int, start: int, stop: int) -> None:
    """Numbers start .. stop - 1 of one line."""
    store[:, line * new + start : line * new + stop].copy_(store[:, line * old + start : line * old + stop])
