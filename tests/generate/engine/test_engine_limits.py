"""How many rollouts a given memory holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from held_memory import HeldMemory
from inside import inside

from loops import each
from podsrl.generate import Engine, Request, Sampling
from podsrl.generate.engine.kv_account import Account
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.generate.engine.limits import plan_memory
from podsrl.generate.schedule.scheduler import SCHEDULERS


def wanted(prompt: int, limit: int, num: int, name: str = "a") -> Request:
    return Request(name, (1,) * prompt, num, Sampling(max_new_tokens=limit))


def test_without_bounds_everything_has_a_slot() -> None:
    plan = plan_memory([wanted(3, 8, 5), wanted(7, 2, 4, "b")], 100, None, None)
    assert (plan.num_slots, plan.row_tokens, plan.row_bytes) == (9, 10, 1000)
    assert plan.cache_bytes is None and plan.num_tokens is None


@pytest.mark.parametrize(
    ("kv_cache_bytes", "slots", "shelf"),
    [(1000, 1, 0), (1999, 1, 999), (2000, 1, 1000), (4999, 3, 1999), (5000, 4, 1000), (9000, 8, 1000)],
)
def test_a_bound_leaves_one_slot_s_worth_for_prompts(kv_cache_bytes: int, slots: int, shelf: int) -> None:
    plan = plan_memory([wanted(3, 8, 5)], 100, None, kv_cache_bytes)
    assert (plan.num_slots, plan.cache_bytes, plan.num_tokens) == (slots, shelf, slots * 10)


def test_slots_and_bytes_bound_together() -> None:
    assert plan_memory([wanted(3, 8, 5)], 100, 2, 9000).num_slots == 2
    assert plan_memory([wanted(3, 8, 5)], 100, 4, 3000).num_slots == 2


def test_the_plan_says_what_fits() -> None:
    text = str(plan_memory([wanted(3, 8, 5)], 100, None, 4999))
    assert text == "3 slots of up to 10 tokens (1,000 bytes each; kv_cache_bytes = 4,999)"


def test_a_generous_bound_takes_no_more_memory_than_the_rollouts_at_hand_can_use(qwen2: Any) -> None:
    peaks = []
    for bound in (None, 64 << 20):
        engine = Engine(qwen2, kv_cache_bytes=bound)
        found = list(engine.generate([Request("a", (5, 6, 7), 4, Sampling(max_new_tokens=8))]))
        assert len(found) == 4
        peaks.append(engine.peak_kv_bytes)
    assert peaks[1] <= 2 * peaks[0] < 1 << 20


# --- what is held, against an account of our own ---

REQUESTS = [wanted(prompt, limit, num, f"r{prompt}") for prompt, limit, num in ((3, 18, 4), (9, 6, 3), (12, 3, 2))]
ROW = 3 + 18 - 1
"""Tokens of the longest row, of 256 bytes each."""


@pytest.mark.parametrize("forward", ["fast", "model"])
@each("scheduler", SCHEDULERS)
@pytest.mark.parametrize("rows", [1, 3.3])
def test_never_is_more_held_than_the_bound_and_all_that_is_held_is_counted(
    qwen2: Any, scheduler: str, forward: Any, rows: float
) -> None:
    bound = int(rows * ROW * 256)
    engine = Engine(qwen2, kv_cache_bytes=bound, scheduler=scheduler, forward=forward)
    with HeldMemory(engine, head_dim=8) as held:
        assert len(list(engine.generate(REQUESTS))) == 9
    assert held.peak == engine.peak_kv_bytes <= bound


@pytest.mark.parametrize("options", [{}, {"num_slots": 3}])
def test_without_a_bound_growth_counts_old_and_new_memory(qwen2: Any, options: Any) -> None:
    engine = Engine(qwen2, **options)
    with HeldMemory(engine, head_dim=8) as held:
        list(engine.generate(REQUESTS))
        assert held.peak == engine.peak_kv_bytes > inside(engine)["held_bytes"] > 0


def test_arrivals_under_a_bound_find_room_or_make_the_memory_start_over(qwen2: Any) -> None:
    """Each arrival wants another row of 50 tokens; where old and new rows do not fit at once, all is read again."""
    rereads = []
    for rows in (5, 40):
        bound = rows * 50 * 256
        engine = Engine(qwen2, kv_cache_bytes=bound)
        with HeldMemory(engine, head_dim=8) as held:
            found = []
            for i in range(8):
                engine.submit([wanted(24, 27, 1, f"r{i}")])
                found += [completion for _ in range(3) for completion in engine.step()]
            while engine.num_unfinished > 0:
                found += engine.step()
        assert len(found) == 8 and held.peak == engine.peak_kv_bytes <= bound
        rereads.append(engine.stats.recomputed_tokens)
    assert rereads[0] > 0 == rereads[1]


def test_small_pools_wait_for_the_next_call_and_count_when_they_are_used(qwen2: Any) -> None:
    engine = Engine(qwen2)
    list(engine.generate([wanted(8, 40, 6)]))
    large, engine.peak_kv_bytes = engine.peak_kv_bytes, 0
    list(engine.generate([wanted(2, 3, 1)]))
    assert engine.peak_kv_bytes == (2 + 3 - 1) * 256 < large  # rows of another length: another pool


def test_an_account_tells_what_is_held_the_most_that_was_and_what_is_left() -> None:
    account = Account(100)
    account.take(60)
    with account.lent(30):
        assert (account.held, account.room) == (90, 10)
    account.give(20)
    assert (account.held, account.peak, account.room) == (40, 90, 60)
    assert Account().room is None


def arrivals_one_by_one(engine: Engine, count: int, num_new: int) -> int:
    """A rollout arrives before every step; all come to their end."""
    ended = 0
    for i in range(count):
        engine.submit([Request(f"late-{i}", (3, 4 + i % 5, 7), 1, Sampling(max_new_tokens=num_new))])
        ended += len(engine.step())
    while engine.num_unfinished:
        ended += len(engine.step())
    return ended


def test_arrivals_one_by_one_under_a_bound_start_over_once_at_most(qwen2: Any) -> None:
    row_bytes = (3 + 20 - 1) * Engine(qwen2).forward.layout.token_bytes
    engine = Engine(qwen2, num_slots=24, kv_cache_bytes=25 * row_bytes)
    assert arrivals_one_by_one(engine, 24, 20) == 24
    assert engine.peak_kv_bytes <= 25 * row_bytes
    # to start over recomputes every running rollout once: at most 24 of at most 22 tokens
    assert engine.stats.recomputed_tokens <= 24 * 22


def test_arrivals_one_by_one_without_a_bound_seldom_move_the_memory(
    qwen2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[int] = []
    move = KVPool._move
    monkeypatch.setattr(KVPool, "_move", lambda pool, *sizes: (moves.append(1), move(pool, *sizes))[1])
    assert arrivals_one_by_one(Engine(qwen2), 30, 20) == 30
    # by half each time: 1, 2, 3, 4, 6, 9, 13, 19, 28 rows, and 16, 32 tokens
    assert len(moves) <= 14


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
