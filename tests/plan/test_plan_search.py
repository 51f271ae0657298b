"""What a plan suggests, by made-up measurements, and what of it is printed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from plan_records import P, measurements, seen_groups, step

from podsrl.cli.plan import _reading
from podsrl.config.load import load_config
from podsrl.plan.measured import Measurements
from podsrl.plan.rewards import Seen
from podsrl.plan.search import Plan, kept_sizes, make_plan, rollout_sizes


def measured(*overrides: str, pass_rate: float = 0.2, generation: float = 1.0, **changes: Any) -> Measurements:
    """Generation takes `generation` times its seconds; where it is cheap, the best leads by more than rounding."""
    values: dict[str, Any] = {"noise": 1.0, "groups": seen_groups(pass_rate), "disturbed": generation} | changes
    return measurements(*(step(n, shared=4 / n**0.5, **values) for n in (16, 64)), overrides=overrides)


@cache
def usual() -> Plan:
    """A plan of the measurements as they are; it is not changed."""
    return make_plan(measured())


def test_the_suggestion_is_the_candidate_with_most_value_a_second() -> None:
    plan = usual()
    assert plan.best.progress() == max(c.share**1.5 / c.seconds.total for c in plan.candidates)
    assert plan.relative(plan.own) == 1.0 and plan.best != plan.own
    assert plan.relative(plan.best, 2) == pytest.approx(plan.best.progress(2) / plan.own.progress(2))


def test_the_config_s_choice_stays_where_nothing_is_better_by_more_than_the_error() -> None:
    n, m = usual().best.key
    plan = make_plan(measured(f"rollouts.num_rollouts={n}", f"select.num_kept={m}"))
    assert plan.best is plan.own and plan.own.key == (n, m)


def test_candidates_reach_twice_the_largest_measured_n_and_hold_the_own() -> None:
    config = load_config("pods", ["rollouts.num_rollouts=48", "select.num_kept=12"])
    assert rollout_sizes(config, 128) == [4, 8, 16, 32, 48, 64, 128]
    assert kept_sizes(config, 48) == [2, 4, 8, 12, 16, 32, 48]
    assert kept_sizes(config, 8) == [2, 4, 8]
    assert max(c.num_rollouts for c in usual().candidates) == 128


def test_chunks_divide_every_candidate() -> None:
    plan = make_plan(measured("select.num_chunks=4"))
    assert all(c.num_rollouts % 4 == 0 and c.num_kept % 4 == 0 and c.num_kept >= 8 for c in plan.candidates)


def test_dearer_generation_asks_for_fewer_rollouts() -> None:
    cheap, dear = (make_plan(measured(generation=factor)).best.num_rollouts for factor in (0.01, 10.0))
    assert cheap > dear


def test_more_gradient_noise_asks_for_more_kept_rollouts() -> None:
    plans = [make_plan(measured(noise=k)) for k in (0.01, 1.0, 100.0)]
    assert [plan.noise_ratio for plan in plans] == pytest.approx([0.01, 1.0, 100.0])
    sizes = [plan.best.num_kept for plan in plans]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


def test_an_unsure_gradient_noise_widens_the_range_of_a_suggestion() -> None:
    sure, unsure = usual(), replace(usual(), noise_range=(0.1, 10.0))
    (low, high), (sure_low, sure_high) = unsure.relative_range(unsure.best), sure.relative_range(sure.best)
    assert low < sure_low <= sure_high < high
    assert unsure.relative_range(unsure.own) == (1.0, 1.0)
    assert unsure.to_json()["noise_range"] == [0.1, 10.0]


def test_rare_right_answers_ask_for_more_rollouts_than_frequent_ones() -> None:
    rare, frequent = (make_plan(measured(generation=0.1, pass_rate=p)).best.num_rollouts for p in (0.05, 0.5))
    assert rare > frequent


def test_equal_rewards_everywhere_leave_the_config_s_choice_with_its_seconds() -> None:
    zeros = np.zeros(8)
    plan = make_plan(measured(groups=(Seen(rewards=zeros, lengths=zeros + 5, is_correct=zeros > 0),)))
    assert plan.best == plan.own and plan.own.progress() == 0 and plan.own.seconds.total > 0
    assert "every reward that was seen is 0" in plan.unknown[0] and "rollouts.num_rollouts" in plan.unknown[0]
    found = plan.to_json()
    assert found["best"]["seconds"]["total"] > 0 and found["best"]["relative_progress"] is None
    assert plan.price is None


def test_flags_build_the_suggested_config() -> None:
    config = load_config("pods", usual().flags)
    assert (config.rollouts.num_rollouts, config.select.num_kept) == usual().best.key


def test_a_config_that_keeps_all_is_offered_max_variance_where_fewer_are_kept() -> None:
    plan = make_plan(measured("select.num_kept=64", "select.rule=keep_all", generation=0.1, pass_rate=0.05))
    keeps_all = max(c.progress() for c in plan.candidates if c.num_kept == c.num_rollouts)
    assert plan.best.progress() > 1.1 * keeps_all  # no decision on an edge
    assert plan.best.num_kept < plan.best.num_rollouts
    assert "--select.rule=max_variance" in plan.flags


def test_the_json_holds_every_candidate_and_says_what_was_not_measured() -> None:
    plan = make_plan(measured(noise=None))
    result = plan.to_json()
    assert len(result["candidates"]) == len(plan.candidates)
    assert (result["is_noise_measured"], result["noise_ratio"]) == (False, 0.8)
    once = make_plan(measurements(step(64, groups=seen_groups())))
    assert once.spread is None and any("how far repeats" in text for text in once.unknown)


def test_the_price_is_a_generated_tokens_time_over_a_trained_ones() -> None:
    """By the predicted seconds of the config's own sizes; a second epoch reads each trained token again."""
    price, own = usual().price, usual().own
    assert price is not None
    assert price.generated_token_seconds == pytest.approx(own.seconds.generate / (P * 64 * 50))
    assert price.trained_token_seconds == pytest.approx(own.seconds.update / (P * own.taught.trained_tokens))
    assert price.point == pytest.approx(price.generated_token_seconds / price.trained_token_seconds)
    twice = make_plan(measured("optim.num_epochs=2")).price
    assert twice is not None and twice.point == pytest.approx(2 * price.point)
    assert any(f"--prices=[{price.point:.2g}]" in line for line in _reading(usual().to_json()))
