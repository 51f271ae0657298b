"""Lines of equal length that lie one after the other move apart or together, within the memory they lie in.

Line i goes from i times the old stride to i times the new one, so all move in one direction. Taken from the end that
they move towards, a line never lands on one that has still to move; several at once are one copy wherever their places
before and after have nothing in common, and a line that overlaps itself goes in pieces.
"""

from __future__ import annotations

from torch import Tensor


def relay(store: Tensor, num_lines: int, old: int, new: int) -> None:
    """Move the first `num_lines` lines from stride `old` to stride `new`, cut to the shorter of both.

    Args:
        store: [N, numbers]; the same happens in each of the N.
        num_lines: lines that are kept.
        old: numbers from one line's start to the next's.
        new: the same afterwards; `num_lines` of them fit in the store.

    Example:
        >>> import torch
        >>> store = torch.tensor([[1, 2, 3, 4, 0, 0]])
        >>> relay(store, 2, 2, 3)
        >>> store
        tensor([[1, 2, 3, 3, 4, 0]])
    """
    if new > old:
        _apart(store, num_lines, old, new)
    elif new < old:
        _together(store, num_lines, old, new)


def _apart(store: Tensor, num_lines: int, old: int, new: int) -> None:
    end = num_lines
    while end > 1:  # line 0 stays
        first = -(-end * old // new)  # from here on the new places lie behind all old ones
        if first < end:
            _move(store, first, end, old, new, old)
        else:
            first, shift = end - 1, (end - 1) * (new - old)
            for stop in range(old, 0, -shift):
                _move_piece(store, first, old, new, max(0, stop - shift), stop)
        end = first


def _together(store: Tensor, num_lines: int, old: int, new: int) -> None:
    first = 1
    while first < num_lines:
        end = min(num_lines, first * old // new)  # up to here the new places lie before all old ones
        if end > first:
            _move(store, first, end, old, new, new)
        else:
            end, shift = first + 1, first * (old - new)
            for start in range(0, new, shift):
                _move_piece(store, first, old, new, start, min(new, start + shift))
        first = end


def _move(store: Tensor, first: int, end: int, old: int, new: int, length: int) -> None:
    """Lines first .. end - 1, whose old and new places have nothing in common."""
    shape = (len(store), end - first)
    source = store[:, first * old : end * old].view(*shape, old)[:, :, :length]
    store[:, first * new : end * new].view(*shape, new)[:, :, :length].copy_(source)


def _move_piece(store: Tensor, line: int, old: int, new: int, start: int, stop: int) -> None:
    """Numbers start .. stop - 1 of one line."""
    store[:, line * new + start : line * new + stop].copy_(store[:, line * old + start : line * old + stop])
