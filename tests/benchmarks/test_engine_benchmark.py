"""`python -m benchmarks engine`: its parts in their smallest form."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.engine.arms import (
    Arm,
    Made,
    completion_lengths,
    continuous_batching,
    hf_generate,
    podsrl_engine,
)
from benchmarks.engine.demo import measure_demo
from benchmarks.engine.peers import OURS, PEER, QUICK, YARDSTICK, length_z, measure_model
from benchmarks.models import shaped_model, skewed_workload
from benchmarks.operations import Operations
from benchmarks.timing import Taken
from podsrl.errors import UsageError


@pytest.fixture(scope="module")
def model() -> Any:
    return shaped_model("s128")


def test_the_shapes_have_the_sizes_by_which_they_are_known() -> None:
    # Qwen2.5-0.5B has 494 M parameters and 3B 3.09 B, embeddings counted once
    sizes = {}
    for name in ("s256", "s512", "0.5b", "3b"):
        sizes[name] = shaped_model(name, device="meta").num_parameters() / 1e6
    assert sizes == pytest.approx({"s256": 2.8, "s512": 21.8, "0.5b": 494.0, "3b": 3086.0}, rel=0.02)


def test_a_shape_is_the_same_model_each_time_and_leaves_the_global_random_stream_alone() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    first, second = shaped_model("s128"), shaped_model("s128")
    assert torch.equal(torch.rand(1), wanted)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.lm_head.weight, shaped_model("s128", seed=1).lm_head.weight)


def test_an_unknown_shape_names_the_near_miss() -> None:
    with pytest.raises(UsageError, match="Did you mean 's256'"):
        shaped_model("s265")


def test_prompts_are_ragged_distinct_and_hold_no_stop_token() -> None:
    work = skewed_workload(64, 16)
    lengths = sorted(map(len, work.prompts))
    assert (lengths[0], lengths[-1]) == (8, 24) and work.num_rows == 1024
    assert len(set(work.prompts)) == 64
    assert not {0, *work.stop_token_ids} & {token for prompt in work.prompts for token in prompt}


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


def test_tokens_per_second_by_hand() -> None:
    made = Made([3, 5], Taken(2.0, 0.5))
    assert (made.tokens_per_second, made.tokens_per_cpu_second) == (4.0, 16.0)


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
