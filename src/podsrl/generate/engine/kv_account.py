"""The account of the key-value memory: bytes held now, the most held so far, and the bound.

It counts the pool, the copies kept outside of it, and the temporary copies made while rows move. It does not count what
a forward pass holds of the layer that it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Account:
    """Bytes of keys and values, of which `max_bytes` is the bound; None: none.

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
        """Count memory of this size, just before or after it is taken."""
        self.held += num_bytes
        self.peak = max(self.peak, self.held)

    def give(self, num_bytes: int) -> None:
        """Count memory of this size as given back."""
        self.held -= num_bytes

    @contextmanager
    def lent(self, num_bytes: int) -> Iterator[None]:
        """Count temporary memory of this size."""
        self.take(num_bytes)
        try:
            yield
        finally:
            self.give(num_bytes)
