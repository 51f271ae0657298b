"""Curves and bars of characters: braille dots, eight of them per character; blocks of an eighth's height."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rich.text import Text

Array = npt.NDArray[np.float64]
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""Bits of a braille character, by row and column of its dots."""
_BLOCKS = "▁▂▃▄▅▆▇█"


def curve(
    lines: Sequence[tuple[Array, Array, str]], width: int, height: int, bounds: tuple[float, float]
) -> list[Text]:
    """Draw lines over each other.

    Args:
        lines: x and y [points] each, with a style of rich; where they share a character, the first's.
            Points that are not finite are left out; of several in one column of dots the mean is drawn.
        width, height: characters.
        bounds: y at the lower and the upper edge, the first less than the second.

    Returns:
        `height` rows of `width` characters.
    """
    masks = [np.isfinite(x) & np.isfinite(y) for x, y, _ in lines]
    known = [(x[mask], y[mask], style) for (x, y, style), mask in zip(lines, masks, strict=True) if mask.any()]
    cells = np.zeros((height, width), dtype=np.int64)
    owner = np.zeros((height, width), dtype=np.int64)
    low_x, high_x = (min(x.min() for x, _, _ in known), max(x.max() for x, _, _ in known)) if known else (0.0, 1.0)
    for index, (x, y, _) in reversed(list(enumerate(known))):
        columns = (x - low_x) / max(high_x - low_x, 1e-12) * (2 * width - 1)
        heights = (np.clip(y, *bounds) - bounds[0]) / (bounds[1] - bounds[0])
        for row, column in _dots(columns, (1 - heights) * (4 * height - 1)):
            cells[row // 4, column // 2] |= _DOTS[row % 4, column % 2]
            owner[row // 4, column // 2] = index
    rows = []
    for cell_row, owner_row in zip(cells.tolist(), owner.tolist(), strict=True):
        text = Text(no_wrap=True)
        for cell, index in zip(cell_row, owner_row, strict=True):
            text.append(chr(0x2800 + cell) if cell else " ", known[index][2] if cell else "")
        rows.append(text)
    return rows


def _dots(columns: Array, heights: Array) -> list[tuple[int, int]]:
    """(row, column) of every dot of a line: one height per column, joined to that of the column before."""
    places = columns.round().astype(int)
    counts = np.bincount(places)
    means = np.bincount(places, weights=heights) / np.maximum(counts, 1)
    filled = np.flatnonzero(counts)
    at = np.arange(filled[0], filled[-1] + 1)
    rows = np.interp(at, filled, means[filled]).round().astype(int).tolist()
    found = []
    for column, row, before in zip(at.tolist(), rows, [rows[0], *rows[:-1]], strict=True):
        middle = (row + before) // 2
        near, far = (middle, row) if row >= before else (row, middle)
        found += [(each, column) for each in range(min(near, row), max(far, row) + 1)]
        found += [(each, column - 1) for each in range(min(before, middle), max(before, middle) + 1) if column > at[0]]
    return found


def sparkline(values: Array, width: int) -> str:
    """The newest values as blocks between the lowest and the highest; at most `width` characters.

    Example:
        >>> sparkline(np.array([0.0, 0.5, 1.0]), 10)
        '▁▄█'
    """
    known = values[np.isfinite(values)]
    if not width:
        return ""
    if known.size > width:
        known = np.array([part.mean() for part in np.array_split(known, width)])
    low, spread = (known.min(), float(np.ptp(known))) if known.size else (0.0, 0.0)
    return "".join(_BLOCKS[int((value - low) / spread * 7.99)] if spread else _BLOCKS[0] for value in known)


def block(percent: int) -> str:
    """A block of so much of a character's height.

    Example:
        >>> block(0), block(50), block(100)
        ('▁', '▄', '█')
    """
    return _BLOCKS[min(7, percent * 8 // 101)]
