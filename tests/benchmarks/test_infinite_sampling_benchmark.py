"""The scheduling benchmark: its length sets, and what the simulated schedules must show."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from benchmarks.infinite_sampling.lengths import demo_set, gsm8k_set, skewed_set
from benchmarks.infinite_sampling.schedules import Schedule, simulate_group, simulate_set
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


def test_recorded_lengths_are_those_of_gsm8k() -> None:
    lengths = gsm8k_set(32)
    assert len(lengths.learned) == 2048
    assert [len(group) for group in lengths.groups] == [32] * 5
    assert statistics.fmean(row.length for row in lengths.learned) == pytest.approx(124, abs=5)
    learned = {row.request_id for row in lengths.learned}
    assert not any(row.request_id in learned for group in lengths.groups for row in group)


def test_skewed_lengths_have_a_mean_near_20_and_some_at_the_cap() -> None:
    lengths = [row.length for group in skewed_set(512).groups for row in group]
    assert statistics.fmean(lengths) == pytest.approx(20, abs=1)
    assert max(lengths) == 128


def test_the_demos_two_ways_of_answering_are_told_apart_by_the_first_tokens() -> None:
    lengths = demo_set(32)
    rows = [row for group in lengths.groups for row in group]
    assert all(len({row.request_id for row in group}) == 1 for group in lengths.groups)
    long = {row.features for row in rows if row.length > 20}
    short = {row.features for row in rows if row.length <= 20}
    assert long and short and not long & short


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


def test_memoryless_lengths_cannot_be_predicted_so_orders_do_not_differ(skewed: Rows) -> None:
    assert skewed["continuous+ljf", "prompt", None]["steps"] == skewed["continuous", "nothing", None]["steps"]
    assert not any(knows == "tokens" for _, knows, _ in skewed)


def test_one_group_alone_is_simulated_as_in_the_set() -> None:
    lengths = skewed_set(32)
    runs = [simulate_group(lengths, group, Schedule("micro")) for group in lengths.groups]
    rows = by_schedule(simulate_set(lengths))
    assert rows["micro", "nothing", None]["steps"] == statistics.fmean(run.num_steps for run in runs)


def test_the_engine_makes_the_same_completions_under_every_schedule() -> None:
    engine = measure_engine(quick=True)
    assert [arm["schedule"] for arm in engine["arms"]] == list(SCHEDULERS)
    assert all(arm["is_same_as_full"] for arm in engine["arms"])
