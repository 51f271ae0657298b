"""What lives elsewhere, looked at in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling, Setting
from podsrl.policy import load_model, load_tokenizer
from podsrl.records import decode_completions
from podsrl.scale.generators.weights import SharedWeights, mapped
from podsrl.scale.generators.worker import Blueprint, Worker
from podsrl.sync import weights_digest

SAMPLING = Sampling(temperature=0.8, top_p=0.9, max_new_tokens=12, stop_token_ids=(1,))
REQUESTS = [Request("a/ü", (3, 9), 5, SAMPLING), Request("b", (4,), 4, SAMPLING, first_index=3, stream="c")]


@pytest.fixture(scope="module")
def config(tiny_model_folder: Path) -> ModelConfig:
    return ModelConfig(path=str(tiny_model_folder), device="cpu")


@pytest.fixture(scope="module")
def loaded(config: ModelConfig) -> tuple[Any, Any]:
    return load_model(config).eval(), load_tokenizer(config)


@pytest.fixture
def blueprint(config: ModelConfig, loaded: tuple[Any, Any]) -> Callable[..., Blueprint]:
    """A blueprint with some of its arguments changed."""

    def make(model: Any = None, tokenizer: Any = None, **changes: Any) -> Blueprint:
        setting = Setting(load_model=lambda: None, folder=config.path, seed=5, dtype=changes.pop("dtype", "float32"))
        given = {"generator": "engine", "options": {}, "config": config, "threads": 1, "num_workers_here": 1, **changes}
        return Blueprint.of(model or loaded[0], tokenizer or loaded[1], setting, **given)

    return make


def load(worker: Worker, model: Any, version: int = 3) -> str:
    weights = SharedWeights()
    weights.put(model.named_parameters(), version)
    assert weights.table is not None
    table = json.loads(json.dumps(weights.table))
    try:
        return worker.load_weights(table, mapped(weights.descriptor, table))
    finally:
        weights.close()


def test_it_gives_the_engines_completions_bit_for_bit(blueprint: Any, loaded: tuple[Any, Any]) -> None:
    model, _ = loaded
    worker = Worker(blueprint())
    assert load(worker, model) == weights_digest(model.named_parameters())
    engine = Engine(model, seed=5)
    engine.version = 3
    pieces = list(worker.generate(REQUESTS))
    found = [done for piece in pieces for done in decode_completions(piece)]
    assert sorted(found, key=lambda done: (done.request_id, done.index)) == sorted(
        engine.generate(REQUESTS), key=lambda done: (done.request_id, done.index)
    )
    assert len(pieces) <= len({len(done.token_ids) for done in found}), "those that finish in a step come together"
    counts = worker.counts()
    assert counts["stats"]["tokens"] == sum(len(done.token_ids) for done in found) and counts["peak_kv_bytes"] > 0
    assert worker.facts()["abilities"] == sorted(engine.abilities)
    assert worker.describe(REQUESTS) == engine.describe(REQUESTS)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_have_the_runs_dtype(blueprint: Any, loaded: tuple[Any, Any], config: ModelConfig, dtype: str) -> None:
    model = load_model(config.model_copy(update={"dtype": dtype})).eval()
    worker = Worker(blueprint(model, dtype=dtype))
    assert load(worker, model) == weights_digest(model.named_parameters())


def test_an_abort_belongs_to_one_call(blueprint: Any, loaded: tuple[Any, Any]) -> None:
    worker = Worker(blueprint())
    load(worker, loaded[0])
    asked = [Request("a", (5,), 2, Sampling(max_new_tokens=9))]
    worker.abort(["a"], 2)  # heard before the call begins
    reasons = [
        {done.finish_reason for piece in worker.generate(asked, call) for done in decode_completions(piece)}
        for call in (2, 3)
    ]
    worker.abort(["a"], 3)  # heard after it has ended
    reasons.append({done.finish_reason for piece in worker.generate(asked, 4) for done in decode_completions(piece)})
    assert reasons == [{"aborted"}, {"length"}, {"length"}]


def test_an_abort_that_is_heard_during_the_call_before_its_own_is_kept(blueprint: Any, loaded: tuple[Any, Any]) -> None:
    worker = Worker(blueprint())
    load(worker, loaded[0])
    asked = [Request("a", (5,), 2, Sampling(max_new_tokens=9))]
    reasons = []
    for call in (1, 2):
        for piece in worker.generate(asked, call):
            reasons += [done.finish_reason for done in decode_completions(piece)]
            worker.abort(["a"], 2)
    assert reasons == ["length", "length", "aborted", "aborted"]


def test_a_model_that_its_config_does_not_describe_is_an_error(blueprint: Any, make_model: Any) -> None:
    other = make_model("qwen2", max_position_embeddings=256, tie_word_embeddings=True)
    other.model.layers[1].mlp.up_proj = torch.nn.Linear(32, 63, bias=False)
    with pytest.raises(UsageError, match=r"up_proj.*scale\.generators = 0"):
        Worker(blueprint(other))
    scaled = make_model("qwen2", max_position_embeddings=256, tie_word_embeddings=True)
    scaled.model.rotary_emb.inv_freq.mul_(2)
    with pytest.raises(UsageError, match="buffers"):
        Worker(blueprint(scaled))


def test_saved_tensors_that_no_sync_carries_are_an_error(blueprint: Any, make_model: Any) -> None:
    model = make_model("qwen2")
    model.model.register_buffer("seen", torch.zeros(3))
    with pytest.raises(UsageError, match=r"model\.seen"):
        blueprint(model)


def test_a_tokenizer_of_another_model_is_an_error(blueprint: Any, loaded: tuple[Any, Any]) -> None:
    class Other:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0}

    with pytest.raises(UsageError, match="tokenizer"):
        Worker(blueprint(tokenizer=Other()))
