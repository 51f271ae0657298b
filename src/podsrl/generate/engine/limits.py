"""How many rollouts fit in a given amount of key-value memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podsrl.errors import UsageError
from podsrl.generate.base import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Slots of one call, and what they cost.

    Example: 1 MiB at 512 bytes a token holds 2,048 tokens: 40 rows of 50 tokens, with 48 tokens over for one prompt.
    """

    num_slots: int
    """Most rollouts alive at once."""
    row_tokens: int
    """Tokens of the longest possible row: prompt and completion, less the last token, which is never read."""
    bytes_per_token: int
    """Keys and values of one token in all layers."""
    kv_cache_bytes: int | None
    """The bound, None for none."""

    @property
    def row_bytes(self) -> int:
        return self.row_tokens * self.bytes_per_token

    @property
    def shelf_bytes(self) -> int | None:
        """What is left for shared prompts and paused rollouts; None: no bound."""
        return None if self.kv_cache_bytes is None else max(0, self.kv_cache_bytes - self.num_slots * self.row_bytes)

    @property
    def num_tokens(self) -> int | None:
        """Tokens the rows may hold together; None: no bound."""
        return None if self.kv_cache_bytes is None else self.num_slots * self.row_tokens

    def __str__(self) -> str:
        bound = "no bound" if self.kv_cache_bytes is None else f"kv_cache_bytes = {self.kv_cache_bytes:,}"
        return f"{self.num_slots:,} slots of up to {self.row_tokens:,} tokens ({self.row_bytes:,} bytes each; {bound})"


def plan_memory(
    requests: Sequence[Request], bytes_per_token: int, num_slots: int | None, kv_cache_bytes: int | None
) -> MemoryPlan:
    """Divide the memory into slots that hold the longest request.

    One slot's worth is left for the prompts that waiting rollouts start from, and for paused ones. The slots of a bound
    do not depend on how many rollouts are wanted now, since more may arrive.

    Raises:
        UsageError: a request that can never fit, with the numbers.
    """
    row_tokens = max((_row_tokens(request) for request in requests), default=1)
    wanted = max(1, sum(request.num_rollouts for request in requests))
    slots = wanted if num_slots is None else num_slots
    if kv_cache_bytes is not None:
        fit = kv_cache_bytes // (row_tokens * bytes_per_token)
        if fit < 1:
            raise _too_long(max(requests, key=_row_tokens), bytes_per_token, kv_cache_bytes)
        room = max(1, fit - 1)
        slots = room if num_slots is None else min(num_slots, room)
    return MemoryPlan(
        num_slots=slots, row_tokens=row_tokens, bytes_per_token=bytes_per_token, kv_cache_bytes=kv_cache_bytes
    )


def _row_tokens(request: Request) -> int:
    return len(request.prompt_ids) + request.sampling.max_new_tokens - 1


def _too_long(request: Request, bytes_per_token: int, kv_cache_bytes: int) -> UsageError:
    needed = _row_tokens(request) * bytes_per_token
    return UsageError(
        f"kv_cache_bytes = {kv_cache_bytes:,}: request {request.id!r} alone needs {needed:,} "
        f"({len(request.prompt_ids)} prompt tokens + max_new_tokens = {request.sampling.max_new_tokens}, at "
        f"{bytes_per_token:,} bytes a token): give at least that, or shorten one of them"
    )
