"""How long work reports where it stands: two kinds of callbacks."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Called with a line of text that stays."""
Progress = Callable[[float, float | None, str], None]
"""Called with what is done, out of how much (None: not known), and what goes on, in words."""


def no_progress(done: float, total: float | None, text: str) -> None:
    """Report nothing."""
