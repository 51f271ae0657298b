"""The engine makes the tokens that the model itself would, whatever shares the batch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch

from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling
from podsrl.types import Completion

PROMPTS = [(5, 7), (9, 20, 31, 4, 50, 11, 8), (8,), (60, 61, 62, 63)]
GREEDY = Sampling(top_k=1, max_new_tokens=12)
MIXED = Sampling(temperature=0.8, top_p=0.9, top_k=20, min_p=0.02, max_new_tokens=12)
Key = tuple[str, int]


def requests(sampling: Sampling, num_rollouts: int = 1) -> list[Request]:
    return [Request(f"r{i}", prompt, num_rollouts, sampling) for i, prompt in enumerate(PROMPTS)]


def by_key(completions: Iterable[Completion]) -> dict[Key, Completion]:
    """No completion comes twice."""
    found: dict[Key, Completion] = {}
    for completion in completions:
        assert found.setdefault((completion.request_id, completion.index), completion) is completion
    return found


def run(model: Any, wanted: Sequence[Request], **options: Any) -> dict[Key, Completion]:
    return by_key(Engine(model, **options).generate(wanted))


def tokens(completions: dict[Key, Completion]) -> dict[Key, tuple[int, ...]]:
    return {key: completion.token_ids for key, completion in completions.items()}


def reference(model: Any, prompt: Sequence[int], max_new_tokens: int, eos: int | None = None) -> tuple[int, ...]:
    """Transformers' own greedy decoding of one prompt alone."""
    ids = torch.tensor([prompt])
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=max_new_tokens, eos_token_id=eos
    )
    return tuple(output[0, len(prompt) :].tolist())


# --- the same tokens as the model's own ---


def test_greedy_tokens_of_ragged_prompts_equal_transformers_generate(tiny_model: Any) -> None:
    found = run(tiny_model, requests(GREEDY))
    assert tokens(found) == {(f"r{i}", 0): reference(tiny_model, p, 12) for i, p in enumerate(PROMPTS)}
    assert len(set(tokens(found).values())) == len(PROMPTS)


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_eager_attention_gives_the_same_tokens_for_ragged_prompts(make_model: Callable[..., Any], family: str) -> None:
    model = make_model(family, attn_implementation="eager")
    assert model.config._attn_implementation == "eager"
    assert tokens(run(model, requests(GREEDY))) == {
        (f"r{i}", 0): reference(model, prompt, 12) for i, prompt in enumerate(PROMPTS)
    }


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["qwen2", "mistral"])
def test_a_sliding_window_model_within_its_window_gives_the_same_tokens(
    make_model: Callable[..., Any], family: str, attention: str
) -> None:
    changes = {"use_sliding_window": True, "max_window_layers": 1} if family == "qwen2" else {}
    model = make_model(family, sliding_window=19, attn_implementation=attention, **changes)
    assert tokens(run(model, requests(GREEDY))) == {
        (f"r{i}", 0): reference(model, prompt, 12) for i, prompt in enumerate(PROMPTS)
    }
    with pytest.raises(UsageError, match="over 20 tokens"):
        Engine(model).generate([*requests(GREEDY), Request("long", (3,) * 8, 1, GREEDY)])


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_new_tokens=12),
        Sampling(temperature=0.6, max_new_tokens=12),
        Sampling(top_p=0.7, max_new_tokens=12),
        Sampling(top_k=5, max_new_tokens=12),
        Sampling(min_p=0.1, max_new_tokens=12),
        MIXED,
    ],
    ids=["plain", "temperature", "top_p", "top_k", "min_p", "mixed"],
)
def test_log_probabilities_equal_a_teacher_forced_forward_through_the_slow_twin(
    tiny_model: Any, sampling: Sampling, distribution: Any
) -> None:
    for (request_id, _), completion in run(tiny_model, requests(sampling, 3), seed=2).items():
        prompt = PROMPTS[int(request_id[1:])]
        with torch.no_grad():
            logits = tiny_model(torch.tensor([[*prompt, *completion.token_ids]])).logits[0, len(prompt) - 1 : -1]
        exact = [distribution(row, sampling) for row in logits.tolist()]
        wanted = [math.log(p[token]) for p, token in zip(exact, completion.token_ids, strict=True)]
        assert list(completion.logprobs) == pytest.approx(wanted, abs=1e-4)


# --- whatever shares the batch ---


@pytest.mark.parametrize("num_slots", [1, 3, 7, 1000])
def test_tokens_do_not_depend_on_the_number_of_slots(qwen2: Any, num_slots: int) -> None:
    together = run(qwen2, requests(MIXED, 5), seed=3)
    found = run(qwen2, requests(MIXED, 5), seed=3, num_slots=num_slots)
    assert tokens(found) == tokens(together)
    for key, completion in found.items():
        assert list(completion.logprobs) == pytest.approx(list(together[key].logprobs), abs=1e-4)


def test_tokens_do_not_depend_on_the_order_of_requests_nor_on_their_company(qwen2: Any) -> None:
    together = tokens(run(qwen2, requests(MIXED, 4)))
    assert tokens(run(qwen2, requests(MIXED, 4)[::-1])) == together
    longer = Request("other", tuple(range(3, 30)), 6, MIXED)
    assert together.items() <= tokens(run(qwen2, [longer, *requests(MIXED, 4)])).items()
    for i, request in enumerate(requests(MIXED, 2)):
        alone = tokens(run(qwen2, [request]))
        assert alone == {key: value for key, value in together.items() if key[0] == f"r{i}" and key[1] < 2}


def test_requests_of_different_sampling_run_side_by_side(qwen2: Any) -> None:
    short = Sampling(top_k=1, max_new_tokens=3)
    mixture = [Request("a", (5, 7), 2, MIXED), Request("b", (5, 7), 2, short), Request("c", (8,), 2, MIXED)]
    found = tokens(run(qwen2, mixture))
    apart = {key: value for request in mixture for key, value in tokens(run(qwen2, [request])).items()}
    assert found == apart
    assert [len(found["b", i]) for i in (0, 1)] == [3, 3]


def test_the_seed_the_request_and_the_index_each_change_the_tokens(qwen2: Any) -> None:
    sampling = Sampling(max_new_tokens=20)
    found = tokens(run(qwen2, [Request("a", (5, 7), 4, sampling), Request("b", (5, 7), 4, sampling)]))
    assert len(set(found.values())) == 8
    assert tokens(run(qwen2, [Request("a", (5, 7), 4, sampling)], seed=1))["a", 0] != found["a", 0]


def test_no_requests_give_no_completions(qwen2: Any) -> None:
    assert run(qwen2, []) == {}


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
    found = by_key(engine.generate([Request("a", (5, 7, 9), 8, sampling), Request("b", (8,), 8, sampling)]))
    rows = [
        shared_rows((key[0], *c.token_ids[:step]) for key, c in found.items() if len(c.token_ids) > step)
        for step in range(1, 12)
    ]
    assert shapes == [(2, 3), *((count, 1) for count in rows if count > 0)]
    assert engine.stats.forwarded == sum(rows)
    assert engine.stats.tokens == sum(len(completion.token_ids) for completion in found.values())
    assert (engine.stats.forwarded < 0.7 * engine.stats.tokens) == (temperature < 1)


def test_bounded_memory_holds_the_pool_the_waiting_prompts_and_nothing_beyond_the_bound(qwen2: Any) -> None:
    engine = Engine(qwen2)
    token = engine.forward.layout.token_bytes
    assert token == 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, float32
    bound = 7 * (7 + 11) * token
    engine = Engine(qwen2, kv_cache_bytes=bound)
    wanted = requests(MIXED, 5)
    assert tokens(by_key(engine.generate(wanted))) == tokens(run(qwen2, wanted))
    assert engine.memory is not None and engine.memory.num_slots == 6
    assert 6 * 18 * token <= engine.peak_kv_bytes <= bound


def test_a_request_that_can_never_fit_is_refused_with_the_numbers(qwen2: Any) -> None:
    engine = Engine(qwen2, kv_cache_bytes=18 * 256 - 1)
    with pytest.raises(UsageError, match=r"kv_cache_bytes = 4,607: request 'r1' alone needs 4,608 \(7 prompt tokens"):
        engine.generate(requests(GREEDY))


# --- how a completion ends ---


def test_a_stop_token_ends_a_completion_and_is_its_last_token(qwen2: Any) -> None:
    whole = reference(qwen2, PROMPTS[0], 12)
    stop = whole[4]
    sampling = Sampling(top_k=1, max_new_tokens=12, stop_token_ids=(98, stop))
    completion = run(qwen2, [Request("a", PROMPTS[0], 1, sampling)])["a", 0]
    assert completion.token_ids == whole[: whole.index(stop) + 1] == reference(qwen2, PROMPTS[0], 12, eos=stop)
    assert completion.finish_reason == "stop"
    assert len(completion.logprobs) == len(completion.token_ids)


def test_without_a_stop_token_a_completion_ends_at_the_limit(qwen2: Any) -> None:
    found = run(qwen2, requests(Sampling(max_new_tokens=5), 3))
    assert {(len(c.token_ids), c.finish_reason) for c in found.values()} == {(5, "length")}


def test_a_stop_token_at_the_limit_counts_as_a_stop(qwen2: Any) -> None:
    whole = reference(qwen2, PROMPTS[0], 4)
    assert whole[3] not in whole[:3]
    sampling = Sampling(top_k=1, max_new_tokens=4, stop_token_ids=(whole[3],))
    assert run(qwen2, [Request("a", PROMPTS[0], 1, sampling)])["a", 0].finish_reason == "stop"


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
        assert (bad.finish_reason, bad.token_ids, bad.logprobs) == ("invalid", (), ())
    assert tokens(found) == tokens(healthy)
    assert {completion.finish_reason for completion in found.values()} == {"length"}


def test_nan_logits_in_the_middle_keep_the_tokens_before_them(qwen2: Any) -> None:
    whole = run(qwen2, requests(GREEDY))
    token = whole["r0", 0].token_ids[3]
    assert token not in whole["r0", 0].token_ids[:3]
    found = run(poisoned(qwen2, token), requests(GREEDY))
    assert found["r0", 0].finish_reason == "invalid"
    assert found["r0", 0].token_ids == whole["r0", 0].token_ids[:4]
    assert found["r0", 0].logprobs == pytest.approx(whole["r0", 0].logprobs[:4])
    others = [i for i, prompt in enumerate(PROMPTS) if token not in (*prompt, *whole[f"r{i}", 0].token_ids)]
    assert others and all(found[f"r{i}", 0].token_ids == whole[f"r{i}", 0].token_ids for i in others)


# --- from outside ---


def abortable(model: Any) -> tuple[Engine, list[Request], int]:
    """Three requests, of which "early" stops after a few tokens."""
    whole = reference(model, PROMPTS[1], 12)
    stop = whole[2]
    assert stop not in whole[:2]
    sampling = Sampling(top_k=1, max_new_tokens=12, stop_token_ids=(stop,))
    wanted = [Request("a", PROMPTS[0], 3, sampling), Request("early", PROMPTS[1], 1, sampling)]
    return Engine(model), [*wanted, Request("b", PROMPTS[2], 1, sampling)], 3


def test_an_abort_between_two_yields_ends_only_that_request(qwen2: Any) -> None:
    engine, wanted, early = abortable(qwen2)
    whole = by_key(engine.generate(wanted))
    running = engine.generate(wanted)
    first = next(running)
    assert (first.request_id, len(first.token_ids)) == ("early", early)
    engine.abort(["a", "unknown", "early"])
    found = by_key(running)
    for index in range(3):
        aborted = found["a", index]
        assert aborted.finish_reason == "aborted"
        assert aborted.token_ids == whole["a", index].token_ids[:early]
        assert aborted.logprobs == whole["a", index].logprobs[:early]
    assert found["b", 0].token_ids == whole["b", 0].token_ids and found["b", 0].finish_reason == "length"
    assert len(found) == 4


def test_an_abort_is_forgotten_by_the_next_call(qwen2: Any) -> None:
    engine, wanted, _ = abortable(qwen2)
    running = engine.generate(wanted)
    next(running)
    engine.abort(["a", "b"])
    list(running)
    again = by_key(engine.generate(wanted))
    assert {completion.finish_reason for completion in again.values()} <= {"stop", "length"}


def test_an_aborted_request_that_waits_for_a_slot_still_yields_each_completion_once(qwen2: Any) -> None:
    engine = Engine(qwen2, num_slots=1)
    running = engine.generate(requests(GREEDY, 2))
    next(running)
    engine.abort(["r3"])
    found = by_key(running)
    assert len(found) == 7
    assert [(found["r3", i].finish_reason, len(found["r3", i].token_ids)) for i in (0, 1)] == [("aborted", 0)] * 2
    assert {len(c.token_ids) for key, c in found.items() if key[0] != "r3"} == {12}


@pytest.mark.parametrize("is_training", [True, False])
def test_generation_is_without_dropout_and_leaves_the_models_mode_as_it_was(make_model: Any, is_training: bool) -> None:
    model = make_model("qwen2", attention_dropout=0.5)
    wanted = tokens(run(model.eval(), requests(GREEDY)))
    model.train(is_training)
    assert tokens(run(model, requests(GREEDY))) == wanted
    assert model.training is is_training


def test_the_models_mode_comes_back_when_the_consumer_stops_early_or_raises(make_model: Any) -> None:
    model = make_model("qwen2").train()
    running = Engine(model, num_slots=1).generate(requests(GREEDY))
    next(running)
    assert not model.training
    del running
    assert model.training
    for _ in Engine(model, num_slots=1).generate(requests(GREEDY)):
        break
    assert model.training
    with pytest.raises(ZeroDivisionError):
        for completion in Engine(model).generate(requests(GREEDY)):
            _ = 1 / len(completion.token_ids[:0])
    assert model.training


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
    assert tokens(by_key(engine.generate(requests(GREEDY)))) == tokens(run(trained, requests(GREEDY)))
    with torch.no_grad():
        trained.lm_head.weight.zero_()
    assert own.lm_head.weight.abs().sum() > 0


def test_an_unknown_weight_or_another_shape_is_named(make_model: Any) -> None:
    engine = Engine(make_model("qwen2"))
    with pytest.raises(UsageError, match=r"weight 'nope' of shape \(2,\): the engine's model has no such parameter"):
        engine.load_weights([("nope", torch.zeros(2))], version=1)
    with pytest.raises(UsageError, match=r"'model.norm.weight' of shape \(3,\): the engine's model has \(32,\)"):
        engine.load_weights([("model.norm.weight", torch.zeros(3))], version=1)
    assert engine.version == 0


def test_completions_carry_the_version_of_the_weights(qwen2: Any) -> None:
    engine = Engine(qwen2)
    assert {completion.version for completion in engine.generate(requests(GREEDY))} == {0}
    engine.load_weights([], version=7)
    assert {completion.version for completion in engine.generate(requests(GREEDY))} == {7}


# --- refused before anything is generated ---


def test_a_repeated_id_is_refused_at_the_call(qwen2: Any) -> None:
    with pytest.raises(UsageError, match="request id 'a' is used twice"):
        Engine(qwen2).generate([Request(name, (3,), 1, GREEDY) for name in ("a", "b", "a")])


def test_a_prompt_and_limit_over_the_models_window_are_refused_at_the_call_and_the_last_that_fits_runs(
    qwen2: Any,
) -> None:
    sampling = Sampling(max_new_tokens=4)
    with pytest.raises(UsageError, match=r"'a' needs 61 prompt tokens \+ max_new_tokens = 4.*the model's window of 64"):
        Engine(qwen2).generate([Request("a", (3,) * 61, 1, sampling)])
    assert len(run(qwen2, [Request("a", (3,) * 60, 1, sampling)])["a", 0].token_ids) == 4


@pytest.mark.parametrize("num_slots", [0, -1])
def test_fewer_than_one_slot_is_refused(qwen2: Any, num_slots: int) -> None:
    with pytest.raises(UsageError, match=f"num_slots = {num_slots}: wanted at least 1"):
        Engine(qwen2, num_slots=num_slots)
