"""`python -m benchmarks halves` at a small size, and its table by hand."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

import pytest

from benchmarks import halves
from benchmarks.figures import shown

MADE_UP = {
    "name": "halves",
    "processor": "abacus",
    "hardware": "two rods",
    "commit": "ab12",
    "date": "2026-01-02T03:04+00:00",
    "options": {"prompt_tokens": 5, "new_tokens": 4, "repeats": 3, "micro_batches": [64, 1024]},
}


def silent(text: str) -> None:
    assert text


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


def test_both_halves_are_measured_at_toy_size() -> None:
    facts = measured()
    assert [*facts["generation_seconds"]] == [*facts["updates"]] == ["1", "4"]
    assert not facts["adapters"] and facts["num_prompts"] == 8 and facts["num_parameters"] > 0
    for n, update in facts["updates"].items():
        assert {*update["all_seconds"]} == {"64", "1024"}
        assert update["seconds"]["median"] == min(update["all_seconds"].values())
        assert update["all_seconds"][str(update["micro_batch_tokens"])] == update["seconds"]["median"]
        step = facts["steps"][n]
        assert step["grpo"] == facts["generation_seconds"][n]["median"] + update["seconds"]["median"]
    assert "pods" not in facts["steps"]["1"]
    assert facts["steps"]["4"]["pods"] < facts["steps"]["4"]["grpo"]


def test_of_a_large_model_adapters_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    add = halves.add_adapters
    monkeypatch.setattr(halves, "LORA_FROM", 1)
    monkeypatch.setattr(halves, "add_adapters", lambda *args, **options: made.append(add(*args, **options)) or made[-1])
    facts = measured(rollouts=[2], kept=[2], micro_batches=[64])
    assert facts["adapters"] and facts["updates"]["2"]["seconds"]["median"] > 0
    trained = {name for name, weight in made[0].named_parameters() if weight.requires_grad}
    assert trained and all("lora" in name for name in trained)


def test_the_table_by_hand() -> None:
    second = {"min": 0.5, "median": 1.0, "max": 1.25}
    update = {"seconds": second, "micro_batch_tokens": 1024, "peak_bytes": 3 << 29}
    facts = {
        "num_parameters": 2_400_000,
        "adapters": False,
        "num_prompts": 8,
        "generation_seconds": {"4": {"min": 2.0, "median": 3.0, "max": 4.0}, "16": second},
        "updates": {"1": update, "4": update},
        "steps": {"4": {"grpo": 4.0, "price": 3.0, "pods": 2.0, "ratio": 2.0}},
    }
    lines = shown({**MADE_UP, "shapes": {"s128": facts, "3b": {**facts, "adapters": True}}}).splitlines()
    assert lines[0] == "abacus (two rods; commit ab12, 2026-01-02):"
    assert lines[2] == "S128 (2 M parameters, all weights are trained), n rollouts for each of 8 prompts:"
    assert lines[6:9] == [
        "| 1 | – | 1.00 (0.50 … 1.25) | 1,024 | 1.5 | – | – | – | – |",
        "| 4 | 3.00 (2.00 … 4.00) | 1.00 (0.50 … 1.25) | 1,024 | 1.5 | 4.00 | 2.00 | 2.00 | 3.00 |",
        "| 16 | 1.00 (0.50 … 1.25) | – | – | – | – | – | – | – |",
    ]
    assert lines[10].startswith("3B (2 M parameters, adapters are trained (LoRA))")
    assert "prompts of 5 tokens, completions of 4; 3 rounds. Micro-batches of 64 and 1,024 tokens" in lines[-1]
