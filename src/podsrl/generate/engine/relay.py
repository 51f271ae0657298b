"""Lines of equal length that lie one after the other move apart or together, within the memory they lie in.

Line i goes from i times the old stride to i times the new one, so all move in one direction. Taken from the end that
they move towards, a line never lands on one that has still to move. Several at once are one copy where their places
before and after have nothing in common; others are set aside for a moment where the account has room for it, and where
it has none a line goes in pieces that do not overlap themselves.
"""

from __future__ import annotations

from torch import Tensor

from podsrl.generate.engine.kv_account import Account


def relay(store: Tensor, num_lines: int, old: int, new: int, account: Account) -> None:
    """Move the first `num_lines` lines from stride `old` to stride `new`, cut to the shorter of both.

    Args:
        store: [N, numbers]; the same happens in each of the N.
        num_lines: lines that are kept.
        old: numbers from one line's start to the next's.
        new: the same afterwards; `num_lines` of them fit in the store.
        account: pays for what is set aside.

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
"""Set aside at once, at most."""


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
    """Lines first .. end - 1; None: their old and new places have nothing in common."""
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
