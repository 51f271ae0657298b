from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from plan_records import from_pass_rate, generation, updates

from podsrl.config.load import load_config
from podsrl.plan.measured import Measurements
from podsrl.plan.result import flags, to_json
from podsrl.plan.rewards import Seen
from podsrl.plan.search import DoesNotFit, Plan, kept_sizes, make_plan, rollout_sizes


def measurements(*overrides: str, pass_rate: float = 0.2, micro: int = 4096, **changes: Any) -> Measurements:
    drawn = from_pass_rate(pass_rate, 5.0, length=50.0).draw(64, 40)
    rows = zip(drawn.rewards, drawn.lengths, drawn.is_correct, strict=True)
    values: dict[str, Any] = {
        "config": load_config("pods", [f"optim.micro_batch_tokens={micro}", *overrides]),
        "generation": tuple(generation(n, shared=4 / n**0.5) for n in (16, 64)),
        "updates": updates(peaks=True),
        "groups": tuple(Seen(rewards=r, lengths=length, is_correct=c) for r, length, c in rows),
        "noise_ratio": 1.0,
        "memory_bytes": 2 * 10**9,
    }
    return Measurements(**(values | changes))


@cache
def usual() -> Plan:
    """A plan of the measurements as they are; it is not changed."""
    return make_plan(measurements())


def test_the_suggestion_is_the_candidate_with_most_value_a_second() -> None:
    plan = usual()
    assert plan.best.progress() == max(c.share**1.5 / c.seconds.total for c in plan.candidates)
    assert plan.relative(plan.own) == 1.0
    assert (
        plan.relative(plan.best, 2) == pytest.approx(plan.best.progress(2) / plan.own.progress(2))
        and plan.best != plan.own
    )


def test_the_config_s_choice_stays_where_nothing_is_better_by_more_than_the_error() -> None:
    best = usual().best
    n, m, micro = best.key
    again = measurements(f"rollouts.num_rollouts={n}", f"select.num_kept={m}", micro=micro)
    plan = make_plan(again)
    assert plan.best is plan.own and plan.own.key == best.key


def test_candidates_reach_twice_the_largest_measured_n_and_hold_the_own() -> None:
    config = load_config("pods", ["rollouts.num_rollouts=48", "select.num_kept=12"])
    assert rollout_sizes(config, 128) == [4, 8, 16, 32, 48, 64, 128]
    assert kept_sizes(config, 48) == [2, 4, 8, 12, 16, 32, 48]
    assert kept_sizes(config, 8) == [2, 4, 8]
    assert max(c.num_rollouts for c in usual().candidates) == 128


def test_chunks_divide_every_candidate() -> None:
    plan = make_plan(measurements("select.num_chunks=4"))
    assert all(c.num_rollouts % 4 == 0 and c.num_kept % 4 == 0 and c.num_kept >= 8 for c in plan.candidates)


def test_a_micro_batch_that_would_fill_the_memory_is_no_candidate() -> None:
    # Peaks are 1 GB + 1000 bytes a token: 4096 tokens want 1.004 GB, 1024 want 1.001 GB.
    tight = measurements(micro=1024, memory_bytes=int(1.003e9 / 0.9))
    plan = make_plan(tight)
    assert {c.micro_batch_tokens for c in plan.candidates} == {1024}
    assert plan.largest_micro_batch == pytest.approx(3000, abs=2)
    assert 4096 in {c.micro_batch_tokens for c in make_plan(replace(tight, memory_bytes=None)).candidates}


def test_a_bound_stands_for_the_machine_s_memory_and_holds_for_the_own_choice_too() -> None:
    measured = measurements(micro=4096)
    bound = int(1.003e9 / 0.9)
    plan = make_plan(measured, bound)
    assert plan.own.micro_batch_tokens == 4096 and plan.own not in plan.candidates
    assert plan.best.micro_batch_tokens == 1024 and plan.best in plan.candidates
    assert all(max(c.kv_bytes, c.update_bytes or 0) <= 0.9 * bound for c in plan.candidates)
    assert to_json(plan, (), "here")["own"]["micro_batch_tokens"] == 4096
    with pytest.raises(DoesNotFit, match=r"--memory of 0\.93 GiB"):
        make_plan(measured, 10**9)


def at_generation_cost(factor: float, *overrides: str, **changes: Any) -> Measurements:
    """Generation at `factor` times its seconds: where it is cheap, the best candidate leads by more than rounding."""
    found = measurements(*overrides, **changes)
    probes = tuple(replace(p, generate_seconds=factor * p.generate_seconds) for p in found.generation)
    return replace(found, generation=probes)


def test_dearer_generation_asks_for_fewer_rollouts() -> None:
    cheap, dear = (make_plan(at_generation_cost(factor)).best.num_rollouts for factor in (0.01, 10.0))
    assert cheap > dear


def test_more_gradient_noise_asks_for_more_kept_rollouts() -> None:
    sizes = [make_plan(measurements(noise_ratio=k)).best.num_kept for k in (0.01, 1.0, 100.0)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


def test_an_unsure_gradient_noise_widens_the_range_of_a_suggestion() -> None:
    sure, unsure = usual(), replace(usual(), noise_range=(0.1, 10.0))
    (low, high), (sure_low, sure_high) = unsure.relative_range(unsure.best), sure.relative_range(sure.best)
    assert low < sure_low <= sure_high < high
    assert unsure.relative_range(unsure.own) == (1.0, 1.0)
    assert to_json(unsure, (), "a machine")["noise_range"] == [0.1, 10.0]


def test_rare_right_answers_ask_for_more_rollouts_than_frequent_ones() -> None:
    rare, frequent = (make_plan(at_generation_cost(0.1, pass_rate=p)).best.num_rollouts for p in (0.05, 0.5))
    assert rare > frequent


def test_equal_rewards_everywhere_leave_the_config_s_choice_with_its_seconds() -> None:
    zeros = np.zeros(8)
    plan = make_plan(measurements(groups=(Seen(rewards=zeros, lengths=zeros + 5, is_correct=zeros > 0),)))
    assert plan.best == plan.own and plan.own.progress() == 0 and plan.own.seconds.total > 0
    assert "every reward that was seen is 0" in plan.unknown[0] and "rollouts.num_rollouts" in plan.unknown[0]
    found = to_json(plan, (), "a machine")
    assert found["best"]["seconds"]["total"] > 0 and found["best"]["relative_progress"] is None


def test_flags_build_the_suggested_config() -> None:
    plan = usual()
    config = load_config("pods", flags(plan))
    n, m, micro = plan.best.key
    assert (config.rollouts.num_rollouts, config.select.num_kept, config.optim.micro_batch_tokens) == (n, m, micro)


def test_a_config_that_keeps_all_is_offered_max_variance_where_fewer_are_kept() -> None:
    plan = make_plan(at_generation_cost(0.1, "select.num_kept=64", "select.rule=keep_all", pass_rate=0.05))
    keeps_all = max(c.progress() for c in plan.candidates if c.num_kept == c.num_rollouts)
    assert plan.best.progress() > 1.1 * keeps_all  # no decision on an edge
    assert plan.best.num_kept < plan.best.num_rollouts
    assert "--select.rule=max_variance" in flags(plan)


def test_the_json_holds_every_candidate_and_says_where_noise_was_not_measured() -> None:
    plan = make_plan(measurements(noise_ratio=None))
    result = to_json(plan, (), "a machine")
    assert len(result["candidates"]) == len(plan.candidates)
    assert (result["is_noise_measured"], result["noise_ratio"], result["checks"]["own"]) == (False, 0.8, None)
