"""Sync hands over every weight by name, detached, with the version, and copies nothing that is shared."""

from __future__ import annotations

from typing import Any

import torch

from podsrl.generate import Engine, Request, Sampling
from podsrl.sync import sync_weights, weights_digest


def test_a_generator_gets_every_parameter_detached_and_in_place() -> None:
    model = torch.nn.Linear(2, 3)
    taken: dict[str, Any] = {}

    class Recorder:
        def load_weights(self, named_tensors: Any, version: int) -> None:
            taken.update(named_tensors, version=version)

    sync_weights(model, Recorder(), 5)
    assert taken.pop("version") == 5
    assert taken.keys() == {"weight", "bias"}
    assert taken["weight"].data_ptr() == model.weight.data_ptr()
    assert not any(tensor.requires_grad for tensor in taken.values())


def test_an_engine_on_the_trained_model_itself_copies_nothing(make_model: Any) -> None:
    model = make_model("qwen2")
    engine = Engine(model)
    writes = [parameter._version for parameter in model.parameters()]
    sync_weights(model, engine, 3)
    assert [parameter._version for parameter in model.parameters()] == writes
    assert engine.version == 3


def test_an_engine_on_a_copy_of_a_model_with_tied_embeddings_gets_the_new_weights(make_model: Any) -> None:
    own, trained = (make_model("qwen2", tie_word_embeddings=True) for _ in range(2))
    with torch.no_grad():
        trained.model.embed_tokens.weight.add_(1)
    sync_weights(trained, Engine(own), 1)
    assert torch.equal(own.lm_head.weight, trained.lm_head.weight)


def test_an_idle_engine_looks_a_changed_model_up_when_it_generates_next(make_model: Any) -> None:
    model, other = (make_model("qwen2") for _ in range(2))
    with torch.no_grad():
        other.model.embed_tokens.weight.mul_(3)
    request = Request("a", (1, 2, 3), 4, Sampling(max_new_tokens=6))
    engine = Engine(model)
    list(engine.generate([request]))
    model.lm_head.weight, model.model.embed_tokens.weight = other.lm_head.weight, other.model.embed_tokens.weight
    sync_weights(model, engine, 1)
    sync_weights(model, fresh := Engine(model), 1)
    drawn = [sorted((c.index, c.token_ids, c.logprobs) for c in each.generate([request])) for each in (engine, fresh)]
    assert drawn[0] == drawn[1]


def test_weights_of_several_number_formats_have_the_digest_of_their_exact_values() -> None:
    values = {"a": torch.tensor([16777217], dtype=torch.int64), "b": torch.tensor([0.1], dtype=torch.float32)}
    assert weights_digest(values.items()) == weights_digest((n, v.double()) for n, v in values.items())
