"""What lives elsewhere, looked at in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.generate import Engine, Generator, Request, Sampling, Setting
from podsrl.policy import load_model, load_tokenizer
from podsrl.records import decode_completions
from podsrl.scale.generators.weights import SharedWeights, mapped
from podsrl.scale.generators.worker import Blueprint, Worker, decode_requests, encode_requests
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
        made = Blueprint.of(model or loaded[0], tokenizer or loaded[1], setting, **given)
        return Blueprint.of_json(made.to_json())

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
    pieces = list(worker.generate(encode_requests(REQUESTS)))
    found = [done for piece in pieces for done in decode_completions(piece)]
    assert sorted(found, key=lambda done: (done.request_id, done.index)) == sorted(
        engine.generate(REQUESTS), key=lambda done: (done.request_id, done.index)
    )
    assert len(pieces) <= len({len(done.token_ids) for done in found}), "those that finish in a step come together"
    counts = worker.counts()
    assert counts["stats"]["tokens"] == sum(len(done.token_ids) for done in found) and counts["peak_kv_bytes"] > 0
    assert worker.facts()["abilities"] == sorted(engine.abilities)
    assert worker.describe(encode_requests(REQUESTS)) == engine.describe(REQUESTS)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_have_the_runs_dtype(blueprint: Any, loaded: tuple[Any, Any], config: ModelConfig, dtype: str) -> None:
    model = load_model(config.model_copy(update={"dtype": dtype})).eval()
    worker = Worker(blueprint(model, dtype=dtype))
    assert load(worker, model) == weights_digest(model.named_parameters())


def test_a_rollout_that_is_aborted_during_the_call_ends(blueprint: Any, loaded: tuple[Any, Any]) -> None:
    worker = Worker(blueprint())
    load(worker, loaded[0])
    long = Request("long", (5,), 3, Sampling(max_new_tokens=200))
    found = []
    for piece in worker.generate(encode_requests([long, Request("short", (5,), 1, Sampling(max_new_tokens=1))])):
        worker.abort([["long", 1]])  # type: ignore[list-item]  # as JSON gives it
        found += decode_completions(piece)
    reasons = {(done.request_id, done.index): done.finish_reason for done in found}
    assert reasons["long", 1] == "aborted" and reasons["long", 0] == reasons["long", 2] == "length"
    later = [done for piece in worker.generate(encode_requests([long])) for done in decode_completions(piece)]
    assert {done.finish_reason for done in later} == {"length"}


def test_an_abort_belongs_to_one_call(blueprint: Any, loaded: tuple[Any, Any]) -> None:
    worker = Worker(blueprint())
    load(worker, loaded[0])
    asked = encode_requests([Request("a", (5,), 2, Sampling(max_new_tokens=9))])
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
    asked = encode_requests([Request("a", (5,), 2, Sampling(max_new_tokens=9))])
    reasons = []
    for call in (1, 2):
        for piece in worker.generate(asked, call):
            reasons += [done.finish_reason for done in decode_completions(piece)]
            worker.abort(["a"], 2)
    assert reasons == ["length", "length", "aborted", "aborted"]


def test_nothing_of_a_call_that_is_left_early_comes_with_the_next(blueprint: Any, loaded: tuple[Any, Any]) -> None:
    worker = Worker(blueprint())
    load(worker, loaded[0])
    long, short = (Request(name, (5,), 3, Sampling(max_new_tokens=count)) for name, count in (("a", 200), ("b", 1)))
    left = worker.generate(encode_requests([long, short]), 1)
    next(left)
    left.close()  # type: ignore[attr-defined]
    found = [done for piece in worker.generate(encode_requests([short]), 2) for done in decode_completions(piece)]
    assert {(done.request_id, done.index) for done in found} == {("b", index) for index in range(3)}
    whole = [done for piece in worker.generate(encode_requests([long]), 3) for done in decode_completions(piece)]
    assert [len(done.token_ids) for done in whole] == [200] * 3


def test_requests_come_back_as_they_were() -> None:
    sampling = Sampling(temperature=0.1, stop_strings=("ü", "\n"), stop_token_ids=(1, 2), min_p=0.3)
    requests = [*REQUESTS, Request("x", tuple(range(1000)), 2, sampling)]
    assert decode_requests(encode_requests(requests)) == requests


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


class Fixed(Generator):
    """A generator of a user's own: it has no model, and keeps the weights that it is given."""

    def __init__(self, setting: Setting, text: str) -> None:
        self.version, self.text, self.held, self.setting = 0, text, dict[str, Tensor](), setting

    def load_weights(self, named_tensors: Any, version: int) -> None:
        self.held, self.version = {name: tensor.clone() for name, tensor in named_tensors}, version

    def describe(self, requests: Any) -> str:
        return f"{self.text} {self.setting.seed} {len(self.held)} {self.setting.tokenizer.decode([5])}"


def new_fixed(setting: Setting, *, text: str = "mine") -> Fixed:
    return Fixed(setting, text)


def test_a_generator_of_ones_own_is_made_there(blueprint: Any, loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    name = f"{__name__}:new_fixed"
    worker = Worker(blueprint(generator=name, options={"text": "said"}))
    assert load(worker, model) == weights_digest(model.named_parameters())
    assert worker.describe(b"[]") == f"said 5 {len(list(model.parameters()))} {tokenizer.decode([5])}"
    with pytest.raises(UsageError, match="there is no such option"):
        Worker(blueprint(generator=name, options={"txt": "said"}))
