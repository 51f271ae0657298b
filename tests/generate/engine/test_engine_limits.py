"""How many rollouts a given memory holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from held_memory import HeldMemory
from inside import inside

from loops import each
from podsrl.generate import Engine, Request, Sampling
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.generate.engine.limits import plan_memory
from podsrl.generate.schedule.scheduler import SCHEDULERS


def wanted(prompt: int, limit: int, num: int, name: str = "a") -> Request:
    return Request(name, (1,) * prompt, num, Sampling(max_new_tokens=limit))


@pytest.mark.parametrize(
    ("most_slots", "kv_cache_bytes", "slots", "shelf"),
    [
        (None, 1000, 1, 0),
        (None, 1999, 1, 999),
        (None, 2000, 1, 1000),
        (None, 4999, 3, 1999),
        (None, 5000, 4, 1000),
        (None, 9000, 8, 1000),
        (2, 9000, 2, 7000),
        (4, 3000, 2, 1000),
        (None, None, 9, None),
    ],
)
def test_a_bound_leaves_one_slot_s_worth_for_prompts(
    most_slots: int | None, kv_cache_bytes: int | None, slots: int, shelf: int | None
) -> None:
    """Rows of up to 10 tokens, of 100 bytes each; without a bound each rollout has a slot."""
    plan = plan_memory([wanted(3, 8, 5), wanted(7, 2, 4, "b")], 100, most_slots, kv_cache_bytes)
    assert (plan.row_tokens, plan.row_bytes, plan.num_slots, plan.cache_bytes) == (10, 1000, slots, shelf)
    assert plan.num_tokens == (None if kv_cache_bytes is None else slots * 10)


@each("scheduler", SCHEDULERS)
def test_a_generous_bound_takes_no_more_memory_than_the_rollouts_at_hand_can_use(qwen2: Any, scheduler: str) -> None:
    """Nor has the pool more rows, for each of which a graph has logits."""
    peaks = []
    for bound in (None, 64 << 20):
        engine = Engine(qwen2, kv_cache_bytes=bound, scheduler=scheduler)
        for first in (0, 2) if bound else (0,):
            engine.submit([Request("a", (5, 6, 7), 2 if bound else 4, Sampling(max_new_tokens=8), first_index=first)])
        assert inside(engine)["most_rows"] == 4
        while engine.num_unfinished > 0:
            engine.poll()
        assert engine.stats.slots_used == 4
        peaks.append(engine.peak_kv_bytes)
    assert peaks[1] <= 2 * peaks[0] < 1 << 20


# --- what is held, against an account of our own ---

REQUESTS = [wanted(prompt, limit, num, f"r{prompt}") for prompt, limit, num in ((3, 18, 4), (9, 6, 3), (12, 3, 2))]
ROW = 3 + 18 - 1
"""Tokens of the longest row, of 256 bytes each."""


@pytest.mark.parametrize("forward", ["fast", "model"])
@each("scheduler", SCHEDULERS)
@pytest.mark.parametrize("rows", [1, 3.3, None])
def test_never_is_more_held_than_the_bound_and_all_that_is_held_is_counted(
    qwen2: Any, scheduler: str, forward: Any, rows: float | None
) -> None:
    """Without a bound too: what grows is counted with what it replaces."""
    bound = None if rows is None else int(rows * ROW * 256)
    engine = Engine(qwen2, kv_cache_bytes=bound, scheduler=scheduler, forward=forward)
    with HeldMemory(engine, head_dim=8) as held:
        assert len(list(engine.generate(REQUESTS))) == 9
    assert held.peak == engine.peak_kv_bytes <= (bound or held.peak)


def test_arrivals_under_a_bound_find_room_or_make_the_memory_start_over(qwen2: Any) -> None:
    """Each arrival wants another row of 50 tokens; where old and new do not fit at once, all is read again, once."""
    rereads = []
    for rows in (5, 40):
        bound = rows * 50 * 256
        engine = Engine(qwen2, kv_cache_bytes=bound)
        with HeldMemory(engine, head_dim=8) as held:
            found = []
            for i in range(8):
                engine.submit([wanted(24, 27, 1, f"r{i}")])
                found += [completion for _ in range(3) for completion in engine.poll()]
            while engine.num_unfinished > 0:
                found += engine.poll()
        assert len(found) == 8 and held.peak == engine.peak_kv_bytes <= bound
        rereads.append(engine.stats.recomputed_tokens)
    assert 8 * 50 > rereads[0] > 0 == rereads[1]


def test_small_pools_wait_for_the_next_call_and_count_when_they_are_used(qwen2: Any) -> None:
    engine = Engine(qwen2)
    list(engine.generate([wanted(8, 40, 6)]))
    large, engine.peak_kv_bytes = engine.peak_kv_bytes, 0
    list(engine.generate([wanted(2, 3, 1)]))
    assert engine.peak_kv_bytes == (2 + 3 - 1) * 256 < large  # rows of another length: another pool


def test_memory_that_runs_out_leaves_the_account_right(qwen2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = KVPool(Engine(qwen2).forward.layout)
    pool.reserve(2, 16)

    def fails(*_: Any) -> Any:
        raise torch.OutOfMemoryError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(KVPool, "_empty", fails)
        with pytest.raises(torch.OutOfMemoryError):
            pool.reserve(4, 16)
    assert pool.account.held == pool.num_bytes == 2 * 16 * pool.layout.token_bytes
    pool.reserve(4, 16)
    assert pool.account.held == pool.num_bytes
