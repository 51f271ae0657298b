"""How many rollouts a given memory holds."""

from __future__ import annotations

from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling
from podsrl.generate.memory import plan_memory


def wanted(prompt: int, limit: int, num: int, name: str = "a") -> Request:
    return Request(name, (1,) * prompt, num, Sampling(max_new_tokens=limit))


def test_without_bounds_everything_has_a_slot() -> None:
    plan = plan_memory([wanted(3, 8, 5), wanted(7, 2, 4, "b")], 100, None, None)
    assert (plan.num_slots, plan.row_tokens, plan.row_bytes) == (9, 10, 1000)
    assert plan.shelf_bytes is None and plan.num_tokens is None


@pytest.mark.parametrize(
    ("kv_cache_bytes", "slots", "shelf"),
    [(1000, 1, 0), (1999, 1, 999), (2000, 1, 1000), (4999, 3, 1999), (5000, 4, 1000), (9000, 8, 1000)],
)
def test_a_bound_leaves_one_slot_s_worth_for_prompts_and_pauses(kv_cache_bytes: int, slots: int, shelf: int) -> None:
    plan = plan_memory([wanted(3, 8, 5)], 100, None, kv_cache_bytes)
    assert (plan.num_slots, plan.shelf_bytes, plan.num_tokens) == (slots, shelf, slots * 10)


def test_slots_and_bytes_bound_together() -> None:
    assert plan_memory([wanted(3, 8, 5)], 100, 2, 9000).num_slots == 2
    assert plan_memory([wanted(3, 8, 5)], 100, 4, 3000).num_slots == 2


def test_what_can_never_fit_is_named_with_the_numbers() -> None:
    with pytest.raises(UsageError, match=r"kv_cache_bytes = 999: request 'long' alone needs 1,000 \(3 prompt tokens"):
        plan_memory([wanted(1, 2, 1), wanted(3, 8, 5, "long")], 100, None, 999)


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
