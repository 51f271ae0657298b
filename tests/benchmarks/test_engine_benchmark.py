"""`python -m benchmarks engine`: its arithmetic by hand, its arms, and a tiny run of it."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.engine.arms import (
    Arm,
    completion_lengths,
    continuous_batching,
    hf_generate,
    podsrl_engine,
)
from benchmarks.engine.demo import measure_demo
from benchmarks.engine.peers import OURS, PEER, QUICK, YARDSTICK, length_z, measure_model
from benchmarks.models import shaped_model, skewed_workload
from benchmarks.operations import Operations


@pytest.fixture(scope="module")
def model() -> Any:
    return shaped_model("s128")


def test_a_completion_counts_up_to_and_including_its_first_stop_token() -> None:
    work = skewed_workload(1, 1)
    assert completion_lengths([[9, 8, 2, 0, 0], [1], [9, 9, 9], [3, 1, 2]], work) == [3, 1, 3, 1]


def test_every_engine_makes_all_completions_with_lengths_of_one_distribution(model: Any) -> None:
    work = skewed_workload(8, 16)
    arms: dict[str, Arm] = {
        "hf": hf_generate(model, work, 128),
        "peer": continuous_batching(model, work, 32),
        "ours": podsrl_engine(model, work, None),
        "own forward": podsrl_engine(model, work, 16, "model"),
    }
    made = {name: arm(0) for name, arm in arms.items()}
    for name, one in made.items():
        assert len(one.lengths) == 128 and min(one.lengths) >= 1 and max(one.lengths) <= 128, name
        assert 14 < sum(one.lengths) / 128 < 28, name  # mean 21 with a standard error of 1.8
    assert sorted(made["ours"].lengths) == sorted(made["own forward"].lengths)
    assert model.config._attn_implementation == "sdpa"  # the peer puts back what it changes


def test_the_distance_of_mean_lengths_is_in_standard_errors() -> None:
    # both variances are 2, so the error is sqrt(2 / 2 + 2 / 2); the means differ by 3
    assert length_z([1, 3], [4, 6]) == pytest.approx(3 / 2**0.5)
    assert length_z([2, 2], [2, 2]) == 0.0


def test_matmul_has_most_of_the_time_of_a_function_that_multiplies() -> None:
    a, b = torch.rand(384, 384), torch.rand(200_000)
    with Operations() as found:
        for _ in range(20):
            _ = a @ a
    assert found.share("products") > 0.8 and found.share("attention") == 0
    with Operations() as found:
        b.exp()
    assert found.share("products") == 0 and found.share("elementwise") == 1


def test_a_tiny_run_measures_every_arm_and_a_step_of_the_demo() -> None:
    sizes = replace(QUICK, num_prompts=2, num_rollouts=4, hf_batches=(4, 8), rounds=2)
    said: list[str] = []
    facts = measure_model("s128", sizes, said.append)
    stages = measure_demo((0, 1), 2, said.append)
    json.dumps({"models": [facts], "demo": stages})
    arms = {arm["arm"]: arm for arm in facts["arms"]}
    assert {YARDSTICK, PEER, OURS} <= set(arms) and arms[YARDSTICK]["ratio_to_hf"]["max"] == 1
    assert facts["tuning"]["hf_batch"]["rates"].keys() == {"4", "8"}
    assert [stage["step"] for stage in stages] == [0, 1]
    for stage in stages:
        assert stage["tokens_64"] > 3 * stage["tokens_16"]
        assert 0 < stage["forwards_per_token_64"] <= stage["forwards_per_token_16"] <= 1
    assert any("round 2 of 2" in text for text in said)
