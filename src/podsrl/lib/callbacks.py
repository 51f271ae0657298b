"""How long work reports where it stands: two kinds of callbacks."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Called with a line of text that stays."""
Progress = Callable[[float, float | None, str], None]
"""Called with what is done, out of how much (None: not known), and what goes on, in words."""


def no_progress(done: float, total: float | None, text: str) -> None:
    """Report nothing."""


def part_of(progress: Progress, start: float, share: float) -> Progress:
    """The progress of a part that begins at `start` and makes up `share` of the whole, both 0 .. 1.

    Example:
        >>> half = part_of(lambda done, total, text: print(done, total, text), 0.5, 0.5)
        >>> half(1, 4, "a quarter of the second half")
        0.625 1.0 a quarter of the second half
    """
    return lambda done, total, text: progress(start + share * done / (total or 1.0), 1.0, text)
