"""What benchmarks compute, by numbers by hand and by independent twins."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks import floor, halves, smol, update
from benchmarks.demo import paired
from benchmarks.engine import gpu, watched
from benchmarks.engine.arms import (
    Arm,
    completion_lengths,
    continuous_batching,
    hf_generate,
    podsrl_engine,
)
from benchmarks.engine.peers import length_z
from benchmarks.floor import PARTS, Step, made_up
from benchmarks.judges import labelled
from benchmarks.models import fixed_workload, shaped_model, skewed_workload
from benchmarks.operations import Operations, Product
from benchmarks.paired import Json
from benchmarks.select import scan
from benchmarks.timing import Taken
from benchmarks.update import PLAIN, PLAIN_FAST, difference, peak
from podsrl.generate import Live


def silent(text: str) -> None:
    assert text


# --- select ---


def test_the_scan_finds_a_subset_of_the_largest_variance_by_hand() -> None:
    # three times the variance: {0, 0.1, 1.2} has 0.887, {0, 1, 1.2} has 0.827, the other subsets less
    assert sorted(scan(np.array([0.2, 0.0, 1.0, 0.1, 1.2]), 3).tolist()) == [1, 3, 4]


# --- trl ---


def test_the_ratio_is_taken_within_a_round() -> None:
    from benchmarks.trl.seconds import compared

    taken = {
        "podsrl": [Taken(1.0, 1.0), Taken(2.0, 1.0), Taken(3.0, 1.0)],
        "TRL": [Taken(4.0, 2.0), Taken(4.0, 4.0), Taken(4.0, 5.0)],
    }
    result = compared(taken, "podsrl")
    assert result["peer"] == "TRL"
    assert result["median_seconds"] == {"podsrl": 2.0, "TRL": 4.0}
    assert result["ratio"] == {"median": 0.5, "min": 0.25, "max": 0.75}
    assert result["cpu_ratio"] == {"median": 0.25, "min": 0.2, "max": 0.5}


def test_the_size_with_the_least_processor_time_is_chosen() -> None:
    from benchmarks.trl.seconds import best_setting

    arms = {8: lambda: Taken(1.0, 3.0), 16: lambda: Taken(9.0, 2.0), 32: lambda: Taken(0.1, 4.0)}
    best = best_setting(arms, lambda text: None, "x")
    assert (best.setting, best.arm, best.tried) == (16, arms[16], {8: 3.0, 16: 2.0, 32: 4.0})


# --- demo ---


def test_times_are_those_of_the_first_evaluation_and_a_run_that_misses_it_makes_a_bound() -> None:
    found = paired({"grpo": [[(0, 0.0), (8, 0.5), (12, 0.6)]], "pods": [[(0, 0.0), (4, 0.5), (8, 0.9)]]})
    assert found["0.5"]["seconds"] == {"grpo": [8], "pods": [4]}
    assert found["0.5"]["pods_over"]["grpo"]["ratio"] == pytest.approx(2.0)
    assert found["0.9"]["seconds"] == {"grpo": [None], "pods": [8]}
    over = found["0.9"]["pods_over"]["grpo"]
    assert over["ratio"] == pytest.approx(12 / 8) and over["bound"] == "≥"


# --- smol ---


def test_costs_of_a_real_model_by_hand_and_a_run_that_misses_the_accuracy_stands_at_the_limit() -> None:
    def made(seconds: float) -> Json:
        points = {name: [0, 1] for name in ("step", "tokens", "trained")} | {"cpu_seconds": [0.0, seconds]}
        reached = {name: values[1] for name, values in points.items()} if seconds < 150 else None
        facts = {"stages": {"generate": 1.0, "update": 2.0}, "rate": 5e-4, "commit": "a", "load": 1}
        return {"points": points, "reached": {"0.25": reached}, **facts}

    seconds = {"PODS 32 → 8": (20.0, 10.0), "GRPO 32": (40.0, 150.0)}
    cells = {smol.cell(arm, seed): made(own) for arm, both in seconds.items() for seed, own in enumerate(both, 200)}
    found = smol.summarize(cells)
    auto = smol.cell("auto", 200).config()
    assert (auto.task.name, auto.select.rule, auto.costs and auto.costs.row_ms) == ("reasoning_gym", "max_signal", 46.5)
    assert found["num_wanted"] == 60 and found["num_runs"] == 4
    (line,) = found["lines"]
    assert (line["arm"], line["over"]) == ("GRPO 32", "PODS 32 → 8")
    assert line["cpu_seconds"]["ratios"] == [2.0, 15.0] and line["cpu_seconds"]["bound"] == "≥"
    page = smol.page(found)
    assert "none: 2 of 12 seeds" in page and "| GRPO 32 | 40.0 s, 1 steps, at 0.0005 (1 of 2) |" in page
    lines = smol.draw({**found, "hardware": ""}).axes[0].lines
    assert [float(np.asarray(each.get_ydata(), float)[0]) for each in lines] == [
        20.0,
        10.0,
        15.0,
        40.0,
        150.0,
        95.0,
    ]  # the points of an arm, then their median


# --- update ---


def test_ratios_stand_beside_the_ratio_of_tokens_and_gradients_agree() -> None:
    facts = update.measure(shaped_model("s128"), 16, 4, 1, silent)
    assert facts["floor"] == pytest.approx((16 + 16 * 4) / (16 * 20)) == 0.25
    assert 0 < facts["gradient_difference"] < 1e-5
    for name in (PLAIN, PLAIN_FAST):
        assert 0 < facts["ratio_by_cpu"][name]["min"] == facts["ratio_by_cpu"][name]["max"]
    json.dumps(facts)


def test_a_difference_counts_against_the_tensor_s_own_size_or_a_hundredth_of_the_largest() -> None:
    theirs = {"a": torch.tensor([4.0, -10.0]), "b": torch.tensor([0.001])}
    assert difference({"a": torch.tensor([4.0, -9.0]), "b": torch.tensor([0.001])}, theirs) == pytest.approx(0.1)
    assert difference({"a": theirs["a"], "b": torch.tensor([0.021])}, theirs) == pytest.approx(0.2)


def test_peak_memory_does_not_grow_with_the_rollouts_that_are_not_kept() -> None:
    found = [peak(n, True, silent) for n in (16, 256)]
    assert [facts["num_rollouts"] for facts in found] == [16, 256]
    assert found[1]["update_bytes"] == pytest.approx(found[0]["update_bytes"], rel=0.1)  # a small one is mostly noise
    assert found[0]["update_bytes"] > 2**20


# --- floor ---


def test_products_are_found_forward_and_backward_and_without_gradient() -> None:
    weight = torch.ones(5, 3, requires_grad=True)
    with Operations() as found:
        F.linear(torch.ones(4, 3), weight).sum().backward()
        with torch.inference_mode():
            F.linear(torch.ones(2, 7, 3), weight)
            torch.bmm(torch.ones(6, 1, 2), torch.ones(6, 2, 8))
    assert found.products == {
        ("update", Product(1, 4, 3, 5)): 1,
        ("update", Product(1, 5, 4, 3)): 1,  # the weights' gradient
        ("generate", Product(1, 14, 3, 5)): 1,
        ("generate", Product(6, 1, 2, 8)): 1,
    }
    assert found.seconds["update", "products"] > 0 and found.num_calls["generate"] >= 2


def test_a_made_up_step_is_split_into_its_parts() -> None:
    with made_up("s128") as step:
        assert isinstance(step, Step)
        facts = floor.measure(step, 1, silent)
    seconds = facts["cpu_seconds"]
    assert seconds["step"] == pytest.approx(seconds["bookkeeping"] + sum(seconds[part] for part in PARTS))
    assert 0 < facts["floor_seconds"]["update"] < seconds["update"]
    assert facts["seconds_by_kind"]["generate"]["optimizer"] == 0 < facts["seconds_by_kind"]["update"]["optimizer"]
    json.dumps(facts)


# --- judges ---


def test_each_rule_is_counted_by_what_it_refuses_and_what_it_pays() -> None:
    texts = {"#### 18": True, "So $18$ eggs.": True, "It is 17 or 18": False, "She has 18.": True, "17": False}
    rows = [{"text": text, "answer": "18", "question": "", "right": right} for text, right in texts.items()]
    found = {name: labelled.verdicts(rows, judge) for name, judge in labelled.JUDGES.items()}
    assert found["`math_correct`"] == {"refused": [], "falsely_paid": []}
    assert found["lm-evaluation-harness, strict"] == {"refused": [1, 3], "falsely_paid": []}
    assert found["lm-evaluation-harness, flexible"] == {"refused": [], "falsely_paid": [2]}


# --- watch ---


def test_one_watch_sees_every_rollout_in_every_step_and_the_other_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def look(self: watched.Idle, live: Live) -> tuple[()]:
        assert self.at is None
        seen.append((len(live.keys), live.num_tokens[0]))
        return ()

    monkeypatch.setattr(watched.Idle, "look", look)
    for name, count in (("NUM_PROMPTS", 2), ("NUM_ROLLOUTS", 3), ("NUM_TOKENS", 3)):
        monkeypatch.setattr(watched, name, count)
    result = watched.run(["s128"], 1, lambda text: None)
    assert seen == [(6, tokens) for tokens in range(3)]
    assert result["rollouts"] == 6 and result["models"]["s128"][watched.NEVER]["min"] > 0


# --- halves ---


def measured(**changes: Any) -> Any:
    """Both halves of the smallest shape, as they are in a file."""
    options: dict[str, Any] = {"shapes": ["s128"], "rollouts": [4, 1], "kept": [1, 4], "prompt_tokens": 5}
    options |= {"new_tokens": 3, "micro_batches": [64, 1024], "repeats": 1, "device": "cpu", "out": None, **changes}
    return json.loads(json.dumps(halves.run(Namespace(**options), silent)))["shapes"]["s128"]


def test_steps_by_hand() -> None:
    found = halves.steps({16: 6.0, 4: 2.0, 8: 3.0}, {4: 1.0, 16: 4.0, 1: 0.5})
    assert found == {
        4: {"grpo": 3.0, "price": 2.0, "pods": 2.5, "ratio": 1.2},
        16: {"grpo": 10.0, "price": 1.5, "pods": 7.0, "ratio": 10 / 7},
    }
    assert [*found] == [4, 16]
    assert halves.steps({4: 2.0}, {4: 1.0}) == {4: {"grpo": 3.0, "price": 2.0}}


def test_of_a_large_model_adapters_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    add = halves.add_adapters
    monkeypatch.setattr(halves, "LORA_FROM", 1)
    monkeypatch.setattr(halves, "add_adapters", lambda *args, **options: made.append(add(*args, **options)) or made[-1])
    facts = measured(rollouts=[2], kept=[2], micro_batches=[64])
    assert facts["adapters"] and facts["updates"]["2"]["seconds"]["median"] > 0
    trained = {name for name, weight in made[0].named_parameters() if weight.requires_grad}
    assert trained and all("lora" in name for name in trained)


# --- engine gpu ---


def test_the_floor_by_hand() -> None:
    model: Any = shaped_model("s128")
    work = fixed_workload(4, num_prompts=2, prompt_tokens=6, new_tokens=20)
    # a step reads all weights but the embedding, and 8 rows of 16 tokens; a token has key and value, 4 layers of 32
    weights = 4 * (model.num_parameters() - 64 * 128)
    cache = 8 * 16 * (2 * 4 * 32 * 4)
    assert gpu.floor_rate(model, work, 1e9) == pytest.approx(8 * 1e9 / (weights + cache))


# --- engine ---


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
