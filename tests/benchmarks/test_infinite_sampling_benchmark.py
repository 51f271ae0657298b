"""The scheduling benchmark: what the simulated schedules must show, and the engine under each."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.infinite_sampling.lengths import gsm8k_set, skewed_set
from benchmarks.infinite_sampling.schedules import simulate_set
from benchmarks.infinite_sampling.seconds import SCHEDULERS, measure_engine

Rows = dict[tuple[str, str, str | None], dict[str, Any]]


def by_schedule(rows: list[dict[str, Any]]) -> Rows:
    return {(row["schedule"], row["knows"], row["memory"]): row for row in rows}


@pytest.fixture(scope="module")
def gsm8k() -> Rows:
    return by_schedule(simulate_set(gsm8k_set(32)))


@pytest.fixture(scope="module")
def skewed() -> Rows:
    return by_schedule(simulate_set(skewed_set(32)))


def test_grouping_with_known_lengths_reaches_the_bound_in_a_quarter_of_the_pool(gsm8k: Rows) -> None:
    row = gsm8k["continuous+grouped", "perfect", None]
    assert row["worst_steps_to_bound"] <= 1.02
    assert row["kv_pool_to_full"] == pytest.approx(0.25, abs=0.01)


def test_dynamic_slots_with_predicted_lengths_reach_the_bound_in_half_the_memory(gsm8k: Rows) -> None:
    row = gsm8k["dynamic+ljf", "tokens", "half"]
    assert row["worst_steps_to_bound"] <= 1.1
    assert row["kv_at_once_to_full"] <= 0.5


def test_continuous_refill_halves_the_steps_of_micro_groups_on_skewed_lengths(skewed: Rows) -> None:
    assert skewed["continuous", "nothing", None]["steps_to_micro"] <= 0.55
    assert skewed["micro", "nothing", None]["steps_to_micro"] == 1


def test_the_engine_makes_the_same_completions_under_every_schedule() -> None:
    engine = measure_engine(quick=True)
    assert [arm["schedule"] for arm in engine["arms"]] == list(SCHEDULERS)
    assert all(arm["is_same_as_full"] for arm in engine["arms"])
