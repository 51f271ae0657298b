"""What lives elsewhere, looked at in this process."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from made import end_of
from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling, Setting
from podsrl.policy import load_model, load_tokenizer
from podsrl.records import decode_rollouts
from podsrl.scale.generators.child import Service
from podsrl.scale.generators.weights import SharedWeights, mapped
from podsrl.scale.generators.worker import Blueprint, Worker
from podsrl.sync import weights_digest
from podsrl.types import Rollout

SAMPLING = Sampling(temperature=0.8, top_p=0.9, max_new_tokens=12, stop_token_ids=(1,))
REQUESTS = [Request("a/ü", (3, 9), 5, SAMPLING), Request("b", (4,), 4, SAMPLING, first_index=3)]


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
    worker.submit(REQUESTS)
    steps, counts = list[Sequence[Rollout]](), list[dict[str, Any]]()
    while worker.num_unfinished:
        steps.append(worker.poll())
        counts.append(worker.counts())
    found = [done for ended in steps for done in ended]
    assert sorted(found, key=lambda done: (done.group_id, done.index)) == sorted(
        engine.generate(REQUESTS), key=lambda done: (done.group_id, done.index)
    )
    assert len(steps) == 12, "a step is a token of every rollout"
    num_drawn = [each["stats"]["tokens"] for each in counts]
    assert sum(num_drawn) == sum(len(done.token_ids) for done in found) and num_drawn[0] == 9
    assert max(each["peak_kv_bytes"] for each in counts) > 0
    assert worker.facts()["abilities"] == sorted(engine.abilities)
    assert worker.describe(REQUESTS) == engine.describe(REQUESTS)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_have_the_runs_dtype(blueprint: Any, loaded: tuple[Any, Any], config: ModelConfig, dtype: str) -> None:
    model = load_model(config.model_copy(update={"dtype": dtype})).eval()
    worker = Worker(blueprint(model, dtype=dtype))
    assert load(worker, model) == weights_digest(model.named_parameters())


def test_messages_are_done_between_two_tokens_and_what_ends_says_what_is_left(
    blueprint: Any, loaded: tuple[Any, Any]
) -> None:
    """The loop alone: what is there is done first, so that all of it comes before the first token."""
    service, weights = Service(), SharedWeights()
    weights.put(loaded[0].named_parameters(), 3)
    assert weights.table is not None

    def put(number: int, call: str, *asked: Any, data: Any = None, **more: Any) -> None:
        service.put({"call": call, "number": number, **more}, pickle.dumps(asked), data)

    put(0, "start", blueprint(), podsrl=version("podsrl"))
    put(1, "submit", [Request("a", (5,), 2, Sampling(max_new_tokens=9, stop_token_ids=()))])
    put(2, "submit", [Request("far", (10_000,))])
    put(3, "load_weights", table=weights.table, data=mapped(weights.descriptor, weights.table))
    put(4, "abort", [("a", 1)])
    put(5, "describe", REQUESTS)
    answers = service.answers()
    heads = [next(answers)[0] for _ in range(4)]
    assert [head["number"] for head in heads] == [0, 2, 3, 5]
    assert "another tokenizer" in heads[1]["error"] and heads[1]["is_usage"]
    assert (heads[1]["unfinished"], heads[1]["counted"]) == (2, 2)
    assert heads[2]["result"] == weights.table["digest"]
    found = []
    for reason, left in (("open", 1), ("length", 0)):
        head, body = next(answers)
        [done] = decode_rollouts(body)
        assert (end_of(done), head["unfinished"], head["counted"]) == (reason, left, 2)
        found.append(done)
    assert found[1].version == 3 and not found[1].versions, "the weights came before its first token"
    service.put({"call": "close"})
    assert next(answers, None) is None
    weights.close()


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
