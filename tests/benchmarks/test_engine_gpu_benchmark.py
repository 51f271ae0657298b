"""`python -m benchmarks engine-gpu` at a small size."""

import json
from argparse import Namespace
from typing import Any

import pytest

from benchmarks.engine import gpu
from benchmarks.models import fixed_workload, shaped_model

SMALL = {"device": "cpu", "dtype": "float32", "prompt_tokens": 5, "new_tokens": 4, "repeats": 1}


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
