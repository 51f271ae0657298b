"""What fits: the division of the key-value memory, the pool that takes it, and which requests the model can serve."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from podsrl.errors import UsageError
from podsrl.generate.base import Request
from podsrl.generate.engine.forward.prefill import new_prompt_cache
from podsrl.generate.engine.kv_account import Account
from podsrl.generate.engine.kv_pool import KVPool, Layout
from podsrl.lib.torch_model import Limit, batch_limit

SPARE_BYTES = 256 << 20
"""A pool up to this size is kept for the next call: clearing new memory can cost more than a small model's steps."""
_LOCAL_WINDOWS = ("window_size",)
"""Options of transformers' configs that bound what a layer sees, and that its cache does not know of."""


# --- how the memory is divided ---


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Slots of one call, and the memory that they take.

    Example: 1 MiB at 512 bytes per token holds 2,048 tokens. For rows of at most 50 tokens there are 39 slots of 25,600
    bytes; the remaining 98 tokens are for prompts.
    """

    num_slots: int
    """Most rollouts that run at once."""
    row_tokens: int
    """Tokens of the longest possible row: prompt and completion, without the last token, which is never read."""
    bytes_per_token: int
    """Keys and values of one token in all layers."""
    kv_cache_bytes: int | None
    """The bound, None for none."""

    @property
    def row_bytes(self) -> int:
        return self.row_tokens * self.bytes_per_token

    @property
    def cache_bytes(self) -> int | None:
        """Bytes left for shared prompts; None: no bound."""
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

    One slot's worth is left for the prompts that waiting rollouts start from. The slots of a bound do not
    depend on how many rollouts are wanted now, since more may arrive.

    Raises:
        UsageError: a request that can never fit, with the numbers.
    """
    row_tokens = max((_total(request) - 1 for request in requests), default=1)
    wanted = max(1, sum(request.num_rollouts for request in requests))
    slots = wanted if num_slots is None else num_slots
    if kv_cache_bytes is not None:
        fit = kv_cache_bytes // (row_tokens * bytes_per_token)
        if fit < 1:
            longest = max(requests, key=_total)
            raise UsageError(
                f"kv_cache_bytes = {kv_cache_bytes:,}: request {longest.id!r} alone needs "
                f"{row_tokens * bytes_per_token:,} ({len(longest.prompt_ids)} prompt tokens + max_new_tokens = "
                f"{longest.sampling.max_new_tokens}, at {bytes_per_token:,} bytes per token): give at least that, or "
                "shorten one of them"
            )
        room = max(1, fit - 1)
        slots = room if num_slots is None else min(num_slots, room)
    return MemoryPlan(
        num_slots=slots, row_tokens=row_tokens, bytes_per_token=bytes_per_token, kv_cache_bytes=kv_cache_bytes
    )


# --- the pool that takes it ---


class KVMemory:
    """Opens, enlarges and closes the pool, and keeps the account of all key-value memory.

    Under a bound the pool takes, at the start of a busy period, as much as the present rollouts can use: growing would
    hold old and new memory at once. `max_bytes` bounds everything held; None: no bound.
    """

    def __init__(self, max_bytes: int | None) -> None:
        self.account = Account(max_bytes)
        self._pool: KVPool | None = None
        self._takes_all = False
        """Arrivals found no room to grow: until the busy period ends, the pool takes the whole bound."""
        self._num_slots = 0
        """Of the busy period: the pool knows those that its rollouts can use, which a graph has logits for."""

    def open(self, layout: Layout, plan: MemoryPlan, num_slots: int, num_rollouts: int) -> KVPool:
        """The last busy period's pool where it fits, or a new one, for `num_rollouts` unfinished rollouts."""
        num_tokens = plan.num_tokens if self._takes_all else _tokens_at_hand(plan, num_rollouts)
        self._num_slots, max_rows = num_slots, min(num_slots, num_rollouts)
        if self._pool is None or not _fits(self._pool, plan, max_rows, num_tokens):
            self.release()
            bounds = {"max_rows": max_rows, "max_capacity": plan.row_tokens, "max_tokens": num_tokens}
            self._pool = KVPool(layout, **bounds, account=self.account)
        if num_tokens is not None:
            self._pool.max_rows = max_rows
            self._pool.hold(num_tokens)
            if num_slots * plan.row_tokens == plan.num_tokens:  # no row will need another's place
                self._pool.reserve(num_tokens // plan.row_tokens, plan.row_tokens)
        return self._pool

    def has_grown(self, plan: MemoryPlan, num_rollouts: int) -> bool:
        """Make room for arrivals in the open pool; False: old and new memory together exceed the bound."""
        pool, wanted = self._pool, _tokens_at_hand(plan, num_rollouts)
        if pool is None or wanted is None or pool.max_tokens is None:
            return True
        pool.max_rows = min(self._num_slots, num_rollouts)
        if wanted <= pool.max_tokens:
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
        """Give the pool back, unless it is small; a small one counts towards the peak only when it is used again."""
        if self._pool is not None and self._pool.num_bytes > SPARE_BYTES:
            self.release()
        self.account.peak = 0
        self._takes_all = False

    def release(self) -> None:
        """Give the pool back."""
        if self._pool is not None:
            self._pool.release()
            self._pool = None

    def take_peak(self) -> int:
        """The most that was held since the last call."""
        peak = max(self.account.peak, self.account.held)
        self.account.peak = self.account.held
        return peak


def _tokens_at_hand(plan: MemoryPlan, num_rollouts: int) -> int | None:
    """Tokens of the rows that this many rollouts can use under the bound; None: no bound."""
    return None if plan.num_tokens is None else min(plan.num_tokens, plan.row_tokens * num_rollouts)


def _fits(pool: KVPool, plan: MemoryPlan, max_rows: int, num_tokens: int | None) -> bool:
    has_room = pool.max_rows == max_rows if pool.max_tokens is None else pool.max_tokens >= (num_tokens or 0)
    return pool.max_capacity == plan.row_tokens and has_room


# --- which requests the model can serve ---


def check_requests(model: Any, requests: Sequence[Request], running: Mapping[str, Collection[int]]) -> None:
    """Check that the model can serve these requests.

    UsageError: a rollout that is unfinished or asked for twice, a prompt that with its limit exceeds `row_limit`, a
    token outside the vocabulary, or a model whose cache is not supported over that length. `running` are the indices of
    the unfinished rollouts of each group.
    """
    taken = {request.id: set(running.get(request.id, ())) for request in requests}
    limit = row_limit(model)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    for request in requests:
        if twice := taken[request.id].intersection(request.indices):
            raise UsageError(
                f"request {request.id!r} with first_index = {request.first_index}: rollout {min(twice)} of this group "
                "is unfinished or asked for twice, and would draw the same tokens: give other indices, or another id"
            )
        taken[request.id].update(request.indices)
        ids = (*request.prompt_ids, *chain.from_iterable(start.token_ids for start in request.starts.values()))
        low, high = min(ids), max(ids)
        if not 0 <= low <= high < vocabulary:
            raise UsageError(
                f"request {request.id!r} has tokens from {low} to {high} in its prompt and starts, but the model knows "
                f"0 to {vocabulary - 1}: are they from another tokenizer?"
            )
        if limit is not None and _total(request) > limit.tokens:
            raise UsageError(
                f"request {request.id!r} needs {len(request.prompt_ids)} prompt tokens + max_new_tokens = "
                f"{request.sampling.max_new_tokens}, which exceeds {limit.name}: shorten one of them"
            )
    if requests:
        new_prompt_cache(model, max(map(_total, requests)))


def _total(request: Request) -> int:
    return len(request.prompt_ids) + request.sampling.max_new_tokens


def row_limit(model: Any) -> Limit | None:
    """The most tokens that prompt and completion may have together; None: no bound.

    Within a local window all layers see the whole row; beyond it such a model counts the window from the longest row
    of the batch. Sliding windows are told by the cache's layers, see `new_prompt_cache`.
    """
    config = model.config.get_text_config()
    window = getattr(config, "max_position_embeddings", None)
    limits = [Limit(window, f"the model's window of {window}")] if window and window > 0 else []
    if (alone := batch_limit(config)) is not None:
        limits.append(alone)
    sizes = [size for name in _LOCAL_WINDOWS if (size := getattr(config, name, None)) is not None]
    limits += [Limit(size, f"its local attention's window of {size}") for size in sizes]
    return min(limits, key=lambda limit: limit.tokens, default=None)
