"""`python -m benchmarks engine-gpu` at a small size."""

import json
from argparse import Namespace
from typing import Any

import pytest

from benchmarks.engine import gpu
from benchmarks.figures import shown
from benchmarks.models import fixed_workload, shaped_model

SMALL = {"device": "cpu", "dtype": "float32", "prompt_tokens": 5, "new_tokens": 4, "repeats": 1, "out": None}


def silent(text: str) -> None:
    assert text


def test_the_floor_by_hand() -> None:
    model: Any = shaped_model("s128")
    work = fixed_workload(4, num_prompts=2, prompt_tokens=6, new_tokens=20)
    # a step reads all weights but the embedding, and 8 rows of 16 tokens; a token has key and value, 4 layers of 32
    weights = 4 * (model.num_parameters() - 64 * 128)
    cache = 8 * 16 * (2 * 4 * 32 * 4)
    assert gpu.floor_rate(model, work, 1e9) == pytest.approx(8 * 1e9 / (weights + cache))


def test_the_gpu_measurement_runs_at_toy_size() -> None:
    options = Namespace(shapes=["s128"], rollouts=[4], curve=[2, 8], **SMALL)
    result = json.loads(json.dumps(gpu.run(options, silent)))
    facts = result["s128"]
    assert set(facts["rollouts"]) == {"4"} and set(facts["curve"]) == {"2", "4", "8"}
    assert facts["curve_ratio"] == pytest.approx(facts["curve"]["8"] / facts["curve"]["2"])
    assert 0 < facts["rollouts"]["4"]["share_of_floor"]["podsrl"] < 1


def test_the_table_by_hand() -> None:
    rates = {
        "podsrl": [800.0, 1600.0],
        "HF generate": [400.0, 400.0],
        "transformers continuous batching": [100.0, 50.0],
    }
    result = {
        "name": "engine-gpu",
        "processor": "abacus",
        "hardware": "two rods",
        "commit": "ab12",
        "date": "2026-01-02T03:04+00:00",
        "options": {"shapes": ["0.5b"], "dtype": "bfloat16", "prompt_tokens": 5, "new_tokens": 4, "repeats": 2},
        "bandwidth_bytes_per_second": 1.25e12,
        "0.5b": {"rollouts": {"12": gpu.cell(rates, 24_000.0)}, "curve": {"12": 1200.0, "24": 1.0}},
    }
    lines = shown(json.loads(json.dumps(result))).splitlines()
    assert lines[0] == "abacus (two rods; commit ab12, 2026-01-02):"
    assert lines[4:] == [
        "| 0.5B | 12 | 1,200 (800 … 1,600) | 400 (400 … 400) | 75 (50 … 100) | 3.0× (2.0 … 4.0) | 20.0× (8.0 … 32.0) "
        "| 10.0 | 5.0 % |",
        "",
        lines[-1],
    ]
    assert "prompts of 5 tokens, completions of 4; 2 rounds" in lines[-1] and lines[-1].endswith("allows, 1.2 TB/s.")
