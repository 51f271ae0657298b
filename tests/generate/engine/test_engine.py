"""The engine makes the tokens that the model itself would, whatever shares the batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from contract import by_place, greedy

from podsrl.errors import UsageError
from podsrl.generate import End, Engine, Live, Request, Sampling
from podsrl.types import Rollout

PROMPTS = [(5, 7), (9, 20, 31, 4, 50, 11, 8), (8,), (60, 61, 62, 63)]
GREEDY = Sampling(top_k=1, max_new_tokens=12, stop_token_ids=())
MIXED = Sampling(temperature=0.8, top_p=0.9, top_k=20, min_p=0.02, max_new_tokens=12, stop_token_ids=())
Key = tuple[str, int]


class Failing:
    """A watch that raises."""

    at = None

    def look(self, live: Live) -> Iterable[End]:
        raise ZeroDivisionError


def requests(sampling: Sampling, num_rollouts: int = 1) -> list[Request]:
    return [Request(f"r{i}", prompt, num_rollouts, sampling) for i, prompt in enumerate(PROMPTS)]


def run(model: Any, wanted: Sequence[Request], **options: Any) -> dict[Key, Rollout]:
    return by_place(Engine(model, **options).generate(wanted))


def tokens(completions: dict[Key, Rollout]) -> dict[Key, tuple[int, ...]]:
    return {key: completion.token_ids for key, completion in completions.items()}


def test_where_no_stop_tokens_are_named_those_of_generation_config_and_tokenizer_end_a_completion(qwen2: Any) -> None:
    """The first three tokens that are drawn are made end tokens in turn."""
    [whole] = run(qwen2, [Request("a", PROMPTS[0], 1, GREEDY)]).values()
    first, second, third = dict.fromkeys(whole.token_ids[:3])
    model, request = copy.deepcopy(qwen2), Request("a", PROMPTS[0], 1, Sampling(top_k=1, max_new_tokens=12))
    cases: list[tuple[Any, int | None, int]] = [(None, None, 12), ([98, third], None, 3), (second, None, 2)]
    for named, of_tokenizer, length in [*cases, ([third, second], first, 1), (None, second, 2)]:
        model.generation_config.eos_token_id = named
        engine = Engine(model, tokenizer=SimpleNamespace(eos_token_id=of_tokenizer))
        [done] = engine.generate([request])
        assert (len(done.token_ids), done.finish_reason) == (length, "stop" if length < 12 else "length")
    [done] = engine.generate([replace(request, sampling=GREEDY)])
    assert done.token_ids == whole.token_ids


# --- the same tokens as the model's own ---


def test_greedy_tokens_of_ragged_prompts_equal_transformers_generate(tiny_model: Any) -> None:
    found = run(tiny_model, requests(GREEDY))
    assert tokens(found) == {(f"r{i}", 0): greedy(tiny_model, p, 12) for i, p in enumerate(PROMPTS)}
    assert len(set(tokens(found).values())) == len(PROMPTS)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["qwen2", "mistral"])
def test_a_sliding_window_model_within_its_window_gives_the_same_tokens(
    make_model: Callable[..., Any], family: str, attention: str
) -> None:
    changes = {"use_sliding_window": True, "max_window_layers": 1} if family == "qwen2" else {}
    model = make_model(family, sliding_window=19, attn_implementation=attention, **changes)
    assert tokens(run(model, requests(GREEDY))) == {
        (f"r{i}", 0): greedy(model, prompt, 12) for i, prompt in enumerate(PROMPTS)
    }
    with pytest.raises(UsageError, match="over 20 tokens"):
        Engine(model).generate([*requests(GREEDY), Request("long", (3,) * 8, 1, GREEDY)])


# --- whatever shares the batch ---


def shared_rows(prefixes: Iterable[Sequence[int]]) -> int:
    """Rows that a step needs: one for each distinct beginning."""
    return len({tuple(prefix) for prefix in prefixes})


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_a_prompt_is_read_once_and_rollouts_with_the_same_tokens_so_far_share_a_row(
    make_model: Any, temperature: float
) -> None:
    model = make_model("qwen2")
    shapes: list[tuple[int, ...]] = []
    model.model.embed_tokens.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    sampling = Sampling(temperature=temperature, max_new_tokens=12, stop_token_ids=tuple(range(1, 99, 6)))
    engine = Engine(model, forward="model")
    shapes.clear()
    found = by_place(engine.generate([Request("a", (5, 7, 9), 8, sampling), Request("b", (8,), 8, sampling)]))
    rows = [
        shared_rows((key[0], *c.token_ids[:step]) for key, c in found.items() if len(c.token_ids) > step)
        for step in range(1, 12)
    ]
    assert shapes == [(2, 3), *((count, 1) for count in rows if count > 0)]
    assert engine.stats.forwarded == sum(rows)
    assert engine.stats.tokens == sum(len(completion.token_ids) for completion in found.values())
    assert (engine.stats.forwarded < 0.7 * engine.stats.tokens) == (temperature < 1)


# --- how a completion ends ---


def poisoned(model: Any, token: int) -> Any:
    """A copy of the model that gives NaN from where `token` is read on."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.model.embed_tokens.weight[token] = torch.nan
    return model


def test_a_prompt_that_gives_nan_logits_ends_its_own_rows_only(qwen2: Any) -> None:
    healthy = run(qwen2, requests(MIXED, 3))
    used = {token for ids in (*PROMPTS, *tokens(healthy).values()) for token in ids}
    poison = min(set(range(3, 99)) - used)
    wanted = [Request("bad", (5, poison), 3, MIXED), *requests(MIXED, 3)]
    found = run(poisoned(qwen2, poison), wanted)
    for index in range(3):
        bad = found.pop(("bad", index))
        assert (bad.status, bad.token_ids, bad.logprobs) == ("failed", (), ())
    assert tokens(found) == tokens(healthy)
    assert {completion.finish_reason for completion in found.values()} == {"length"}


# --- from outside ---


@pytest.mark.parametrize("is_training", [True, False])
def test_generation_is_without_dropout_and_leaves_the_models_mode_as_it_was(make_model: Any, is_training: bool) -> None:
    model = make_model("qwen2", attention_dropout=0.5)
    wanted = tokens(run(model.eval(), requests(GREEDY)))
    model.train(is_training)
    assert tokens(run(model, requests(GREEDY))) == wanted
    assert model.training is is_training


def test_each_poll_leaves_every_modules_mode_as_it_was_also_where_it_raises(make_model: Any) -> None:
    """An update may come between two polls; it sets its own modes."""
    model = make_model("qwen2", attention_dropout=0.5)
    wanted = tokens(run(model.eval(), requests(GREEDY)))
    engine = Engine(model)
    engine.submit(requests(GREEDY))
    found = list[Rollout]()
    while engine.num_unfinished:
        model.train()
        model.lm_head.eval()
        found += engine.poll()
        assert model.training and model.model.training and not model.lm_head.training
        model.training = False  # of the module alone
        found += engine.poll()
        assert not model.training and model.model.training
    assert tokens(by_place(found)) == wanted
    engine.submit(requests(GREEDY), watch=Failing())
    with pytest.raises(ZeroDivisionError):
        engine.poll()
    assert model.model.training and not model.training and engine.num_unfinished == 0


def test_gradients_flow_after_a_generation(make_model: Any) -> None:
    model = make_model("llama").train()
    list(Engine(model).generate(requests(GREEDY)))
    model(torch.tensor([[5, 7, 9]])).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


# --- weights ---


def test_weights_that_are_shared_already_are_not_copied(make_model: Any) -> None:
    model = make_model("qwen2")
    engine = Engine(model)
    before = {name: (p.data_ptr(), p._version) for name, p in model.named_parameters()}
    engine.load_weights(((name, p.detach()) for name, p in model.named_parameters()), version=4)
    assert {name: (p.data_ptr(), p._version) for name, p in model.named_parameters()} == before
    assert engine.version == 4


def test_other_weights_are_copied_into_the_engines_own_memory(make_model: Any) -> None:
    own, trained = make_model("qwen2"), make_model("qwen2")
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.mul_(1.1)
    engine = Engine(own)
    pointers = [parameter.data_ptr() for parameter in own.parameters()]
    engine.load_weights(trained.named_parameters(), version=1)
    assert [parameter.data_ptr() for parameter in own.parameters()] == pointers
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), trained.parameters(), strict=True))
    assert tokens(by_place(engine.generate(requests(GREEDY)))) == tokens(run(trained, requests(GREEDY)))
    with torch.no_grad():
        trained.lm_head.weight.zero_()
    assert own.lm_head.weight.abs().sum() > 0


def test_an_unknown_weight_or_another_shape_is_named_and_changes_none(make_model: Any) -> None:
    engine = Engine(make_model("qwen2"))
    before = engine.model.lm_head.weight.detach().clone()
    with pytest.raises(UsageError, match=r"weight 'nope' of shape \(2,\): the engine's model has no such parameter"):
        engine.load_weights([("lm_head.weight", before + 1), ("nope", torch.zeros(2))], version=1)
    with pytest.raises(UsageError, match=r"'model.norm.weight' of shape \(3,\): the engine's model has \(32,\)"):
        engine.load_weights([("model.norm.weight", torch.zeros(3))], version=1)
    assert engine.version == 0 and torch.equal(engine.model.lm_head.weight, before)


# --- refused before anything is generated ---


def of_length(num_tokens: int) -> Request:
    return Request("a", (3,) * num_tokens, 1, Sampling(max_new_tokens=4, stop_token_ids=()))


@pytest.mark.parametrize(
    ("options", "asked", "named"),
    [
        ({}, [*requests(GREEDY), *requests(GREEDY)], "'r0' with first_index = 0: rollout 0 of this group is unf"),
        ({}, [of_length(61)], r"'a' needs 61 prompt tokens \+ max_new_tokens = 4.*the model's window of 64"),
        (
            {"kv_cache_bytes": 18 * 256 - 1},
            requests(GREEDY),
            r"kv_cache_bytes = 4,607: request 'r1' alone needs 4,608 \(7 prompt tokens",
        ),
        ({"num_slots": 0}, [], "num_slots = 0: wanted at least 1"),
    ],
)
def test_what_cannot_run_is_refused_at_the_call(qwen2: Any, options: Any, asked: list[Request], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Engine(qwen2, **options).generate(asked)


def test_the_longest_that_fits_the_models_window_runs(qwen2: Any) -> None:
    assert len(run(qwen2, [of_length(60)])["a", 0].token_ids) == 4
