"""The account of the key-value memory: what is held now, the most that was, and the bound of both.

Whoever takes memory for keys and values says so here: the pool, what is kept outside of it, and the copies that moving
rows needs for a moment. Not counted is what a forward pass holds of the layer that it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Account:
    """Bytes of keys and values.

    Args:
        max_bytes: the bound; None: none.

    Example:
        >>> account = Account(100)
        >>> account.take(70)
        >>> with account.lent(20):
        ...     account.room
        10
        >>> account.held, account.peak
        (70, 90)
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self.max_bytes = max_bytes
        self.held = 0
        self.peak = 0
        """Largest `held` so far; set it to `held` to measure anew."""

    @property
    def room(self) -> int | None:
        """Bytes that may still be taken; None: no bound."""
        return None if self.max_bytes is None else max(0, self.max_bytes - self.held)

    def take(self, num_bytes: int) -> None:
        """Something of this size has been made, or is about to be."""
        self.held += num_bytes
        self.peak = max(self.peak, self.held)

    def give(self, num_bytes: int) -> None:
        """Something of this size is no longer held."""
        self.held -= num_bytes

    @contextmanager
    def lent(self, num_bytes: int) -> Iterator[None]:
        """Something of this size is held for a moment."""
        self.take(num_bytes)
        try:
            yield
        finally:
            self.give(num_bytes)
