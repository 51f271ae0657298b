"""The engine's key-value memory from call to call: the account of it, and the pool that rows lie in.

What is bounded is held from the start of a busy period, as much as the rollouts at hand can use: to grow is to hold old
and new for a moment.
"""

from __future__ import annotations

from podsrl.generate.engine.kv_account import Account
from podsrl.generate.engine.kv_pool import KVPool, Layout
from podsrl.generate.engine.limits import MemoryPlan

_SPARE_BYTES = 256 << 20
"""A pool up to this size waits for the next call: clearing new memory can cost more than a small model's steps."""


class KVMemory:
    """Opens, enlarges and closes the pool.

    Args:
        max_bytes: of all that is held; None: no bound.
    """

    def __init__(self, max_bytes: int | None) -> None:
        self.account = Account(max_bytes)
        self._pool: KVPool | None = None
        self._takes_all = False
        """Arrivals found no room to grow: until the busy period ends, the whole bound is held."""

    def open(self, layout: Layout, plan: MemoryPlan, max_rows: int, num_rollouts: int) -> KVPool:
        """The last busy period's pool where it fits, or a new one.

        Args:
            layout: of the model.
            plan: how the memory is divided.
            max_rows: most rows at once.
            num_rollouts: that are at hand.
        """
        num_tokens = plan.num_tokens if self._takes_all else _tokens_at_hand(plan, num_rollouts)
        if num_tokens is None:
            max_rows = min(max_rows, num_rollouts)
        if self._pool is None or not _fits(self._pool, plan, max_rows, num_tokens):
            self.release()
            bounds = {"max_rows": max_rows, "max_capacity": plan.row_tokens, "max_tokens": num_tokens}
            self._pool = KVPool(layout, **bounds, account=self.account)
        if num_tokens is not None:
            self._pool.hold(num_tokens)
            if max_rows * plan.row_tokens == plan.num_tokens:  # no row will need another's place
                self._pool.reserve(num_tokens // plan.row_tokens, plan.row_tokens)
        return self._pool

    def has_grown(self, plan: MemoryPlan, num_rollouts: int) -> bool:
        """Make room for arrivals in the open pool; False: old and new memory do not fit together under the bound."""
        pool, wanted = self._pool, _tokens_at_hand(plan, num_rollouts)
        if pool is None or wanted is None or pool.max_tokens is None or wanted <= pool.max_tokens:
            return True
        assert plan.num_tokens is not None and self.account.room is not None
        generous = min(plan.num_tokens, max(wanted, pool.max_tokens * 3 // 2))  # arrivals one by one cost little
        for num_tokens in (generous, wanted):
            if pool.row_bytes(num_tokens) <= self.account.room:
                pool.hold(num_tokens)
                pool.max_tokens = num_tokens
                return True
        self._takes_all = True
        return False

    def close(self) -> None:
        """Give the pool back, unless it is small; what it takes then is no peak before it is used again."""
        if self._pool is not None and self._pool.num_bytes > _SPARE_BYTES:
            self.release()
        self.account.peak = 0
        self._takes_all = False

    def release(self) -> None:
        """Give the pool back."""
        if self._pool is not None:
            self._pool.release()
            self._pool = None

    def take_peak(self) -> int:
        """The most that was held since the last time this was asked."""
        peak = max(self.account.peak, self.account.held)
        self.account.peak = self.account.held
        return peak


def _tokens_at_hand(plan: MemoryPlan, num_rollouts: int) -> int | None:
    """Tokens of the rows that so many rollouts can use under the bound; None: no bound."""
    return None if plan.num_tokens is None else min(plan.num_tokens, plan.row_tokens * num_rollouts)


def _fits(pool: KVPool, plan: MemoryPlan, max_rows: int, num_tokens: int | None) -> bool:
    has_room = pool.max_tokens is None or (num_tokens is not None and pool.max_tokens >= num_tokens)
    return (pool.max_rows, pool.max_capacity) == (max_rows, plan.row_tokens) and has_room
