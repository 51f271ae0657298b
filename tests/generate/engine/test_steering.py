"""Steering from outside: arrivals, pauses, forks, hooks, new weights. None of them changes another rollout's tokens."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from contract import by_place

from podsrl.errors import UsageError
from podsrl.generate import Engine, EngineStats, Request, Sampling, StepView
from podsrl.generate.schedule.job import Limits
from podsrl.generate.schedule.plain import Continuous
from podsrl.types import Completion

Key = tuple[str, int]
SAMPLING = Sampling(temperature=0.7, max_new_tokens=10)
LONG = (9, 20, 31, 4, 50, 11, 8)


def drain(engine: Engine) -> dict[Key, Completion]:
    found: dict[Key, Completion] = {}
    while engine.num_unfinished > 0:
        found |= by_place(engine.step())
    return found


def tokens(completions: dict[Key, Completion]) -> dict[Key, tuple[int, ...]]:
    return {key: completion.token_ids for key, completion in completions.items()}


def whole(model: Any, *requests: Request) -> dict[Key, tuple[int, ...]]:
    """Every request alone, undisturbed."""
    return {k: v for r in requests for k, v in tokens(by_place(Engine(model).generate([r]))).items()}


A, B = Request("a", (5, 7), 3, SAMPLING), Request("b", LONG, 2, SAMPLING)


# --- arrivals ---


def test_rollouts_that_would_draw_the_same_tokens_at_once_are_an_error(qwen2: Any) -> None:
    def part(first: int, name: str) -> Request:
        return Request(name, A.prompt_ids, 2, SAMPLING, first_index=first, stream=A.id)

    engine = Engine(qwen2)
    engine.submit([A])
    with pytest.raises(UsageError, match=r"first_index = 2.*rollouts 2 to 2 of stream 'a'"):
        engine.submit([part(2, "x")])
    with pytest.raises(UsageError, match=r"rollouts 4 to 4 of stream"):
        engine.submit([part(3, "x"), part(4, "y")])
    with pytest.raises(UsageError, match="used twice"):
        engine.submit([part(3, A.id)])
    assert {key[0] for key in engine.states()} == {A.id}


# --- pause and resume ---


@pytest.mark.parametrize("keep_kv", [True, False])
def test_a_paused_rollout_goes_on_where_it_stopped_and_is_read_again_if_its_memory_was_not_kept(
    qwen2: Any, keep_kv: bool
) -> None:
    engine = Engine(qwen2)
    engine.submit([A, B])
    for _ in range(5):
        assert engine.step() == []
    engine.pause([("a", 1), "b"], keep_kv=keep_kv)
    first = drain(engine)
    assert set(first) == {("a", 0), ("a", 2)}
    engine.resume(["a", "b"])
    assert tokens(first | drain(engine)) == whole(qwen2, A, B)
    assert (engine.stats.recomputed_tokens > 0) == (not keep_kv)


def test_generate_ends_when_only_paused_rollouts_are_left_and_a_later_call_ends_them(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.hooks.append(lambda view: engine.pause(["a"]) if view.num_tokens[0] == 4 else None)
    first = by_place(engine.generate([A, B]))
    assert set(first) == {("b", 0), ("b", 1)}
    engine.hooks.clear()
    engine.resume(["a"])
    assert tokens(first | by_place(engine.generate([]))) == whole(qwen2, A, B)


# --- forks ---


def test_a_fork_of_a_live_rollout_costs_no_row_until_it_differs(qwen2: Any) -> None:
    greedy = Request("g", (5, 7), 1, Sampling(top_k=1, max_new_tokens=10))
    engine = Engine(qwen2)
    engine.submit([greedy])
    engine.step()
    engine.fork("g", 0, into="h", num_rollouts=5)
    found = drain(engine)
    assert set(tokens(found).values()) == set(whole(qwen2, greedy).values())
    assert engine.stats.rows_used == 1 and engine.stats.slots_used == 6


def test_paused_and_waiting_rollouts_can_be_forked_and_ended_ones_cannot(qwen2: Any) -> None:
    engine = Engine(qwen2, num_slots=3)
    engine.submit([A, B])
    engine.step()
    engine.pause([("a", 0)])
    engine.fork("a", 0, into="of-paused")
    engine.fork("b", 1, into="of-waiting")
    with pytest.raises(UsageError, match="request id 'b' is used twice"):
        engine.fork("a", 1, into="b")
    found = drain(engine)
    assert found["of-paused", 0].token_ids[:1] == whole(qwen2, A)["a", 0][:1]
    assert len(found["of-waiting", 0].token_ids) == 10
    with pytest.raises(UsageError, match="fork of 'b', rollout 1: it is not alive"):
        engine.fork("b", 1, into="d")


# --- hooks ---


def test_a_hook_sees_hidden_states_and_log_probabilities_of_the_live_rows(qwen2: Any) -> None:
    seen: dict[tuple[Key, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def look(view: StepView) -> None:
        for key, num_tokens, row in zip(view.keys, view.num_tokens, view.row_of.tolist(), strict=True):
            seen[key, num_tokens] = (view.hidden[row].clone(), view.logprobs[row].clone())

    engine, model = Engine(qwen2, num_slots=2), copy.deepcopy(qwen2)  # asked for hidden states it keeps hooks
    engine.hooks.append(look)
    found = by_place(engine.generate([A, B]))
    assert set(seen) == {(key, t) for key in found for t in range(10)}
    for request in (A, B):
        for index in range(request.num_rollouts):
            made = found[request.id, index].token_ids
            with torch.no_grad():
                output = model(torch.tensor([[*request.prompt_ids, *made]]), output_hidden_states=True)
            for t in range(10):
                hidden, logprobs = seen[(request.id, index), t]
                place = len(request.prompt_ids) - 1 + t
                assert torch.allclose(hidden, output.hidden_states[-1][0, place], atol=1e-4)
                assert torch.allclose(logprobs, output.logits[0, place].log_softmax(-1), atol=1e-4)


# --- new weights ---


def changed(model: Any) -> Any:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.3)
    return other


@pytest.mark.parametrize("num_slots", [None, 2])
def test_live_and_paused_rollouts_go_on_with_new_weights_from_tokens_read_again(
    make_model: Any, num_slots: int | None
) -> None:
    model = make_model("qwen2")
    before, other = copy.deepcopy(model), changed(model)
    greedy = [Request(r.id, r.prompt_ids, r.num_rollouts, Sampling(top_k=1, max_new_tokens=10)) for r in (A, B)]
    engine = Engine(model, num_slots=num_slots)
    engine.submit(greedy)
    for _ in range(4):
        engine.step()
    engine.pause([("a", 0)])
    old = whole(before, *greedy)["a", 0][:4]
    engine.load_weights(other.named_parameters(), version=1)
    engine.resume(["a"])
    found = drain(engine)
    ids = torch.tensor([[*A.prompt_ids, *old]])
    rest = other.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=6)[0, -6:]
    wanted = (*old, *rest.tolist())
    assert found["a", 0].token_ids == found["a", 1].token_ids == wanted != whole(before, *greedy)["a", 0]
    assert found["a", 0].version == 0


def test_weights_changed_in_place_are_used_by_the_next_call_without_a_copy(make_model: Any) -> None:
    model = make_model("qwen2")
    engine = Engine(model)
    list(engine.generate([A]))
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3] += 0.5
        model.lm_head.weight[7] *= 2.0
    assert tokens(by_place(engine.generate([A]))) == whole(copy.deepcopy(model), A)


def test_a_module_that_is_exchanged_after_the_engine_was_made_is_not_passed_over(make_model: Any) -> None:
    model = make_model("qwen2")
    engine = Engine(model)
    before = tokens(by_place(engine.generate([A])))
    assert engine.forward.name == "fast"

    class Doubled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    old = model.model.layers[0].mlp.down_proj
    model.model.layers[0].mlp.down_proj = Doubled(old.in_features, old.out_features, bias=False)
    model.model.layers[0].mlp.down_proj.weight = old.weight
    after = tokens(by_place(engine.generate([A])))
    assert engine.forward.name == "model"
    assert after != before and after == whole(copy.deepcopy(model), A)


# --- what is recorded, and what happens when things break ---


def test_the_trace_says_who_was_in_the_batch_in_which_steps(qwen2: Any) -> None:
    engine = Engine(qwen2, num_slots=2)
    engine.trace = []
    list(engine.generate([A]))
    assert [(s.request_id, s.index, s.start, s.end) for s in engine.trace] == [
        ("a", 0, 0, 10),
        ("a", 1, 0, 10),
        ("a", 2, 10, 20),
    ]


def test_after_a_failing_hook_the_engine_is_empty_and_works_again(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.hooks.append(lambda view: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(engine.generate([A, B]))
    assert engine.states() == {}
    engine.hooks.clear()
    assert tokens(by_place(engine.generate([A, B]))) == whole(qwen2, A, B)


# --- orders of events that once went wrong ---


def test_bounded_memory_does_not_stay_cut_for_the_first_arrival(qwen2: Any) -> None:
    engine = Engine(qwen2, kv_cache_bytes=400 * 256)
    engine.submit([Request("one", (5, 7), 1, SAMPLING)])
    engine.step()
    more = Request("more", (5, 7), 8, SAMPLING)
    engine.submit([more])
    assert {key: t for key, t in tokens(drain(engine)).items() if key[0] == "more"} == whole(qwen2, more)
    assert engine.stats.slots_used == 9


@pytest.mark.parametrize("verb", ["raise", "abort", "pause"])
def test_broken_numbers_never_outlive_the_rollouts_that_left_with_them(make_model: Any, verb: str) -> None:
    model = make_model("qwen2")
    good = {name: p.detach().clone() for name, p in model.named_parameters()}
    engine = Engine(model)
    wanted = whole(copy.deepcopy(model), A, B)
    broken = ((name, torch.full_like(p, torch.nan)) for name, p in good.items())

    def leave(view: StepView) -> None:
        if verb == "raise":
            raise ZeroDivisionError
        engine.abort(["a", "b"]) if verb == "abort" else engine.pause(["a", "b"])

    engine.load_weights(broken, version=1)
    engine.hooks.append(leave)
    try:
        list(engine.generate([A, B]))
    except ZeroDivisionError:
        assert verb == "raise"
    engine.hooks.clear()
    engine.load_weights(good.items(), version=2)
    engine.abort(["a", "b"])
    engine.step()
    found = by_place(engine.generate([A, B]))
    assert tokens(found) == wanted and {c.version for c in found.values()} == {2}


def test_a_refused_weight_changes_none(make_model: Any) -> None:
    model = make_model("qwen2")
    before = model.lm_head.weight.detach().clone()
    with pytest.raises(UsageError, match="'nope'"):
        Engine(model).load_weights([("lm_head.weight", before + 1), ("nope", before)], version=1)
    assert torch.equal(model.lm_head.weight, before)


def test_a_call_that_is_closed_early_drops_its_own_rollouts_only_and_two_cannot_be_open(qwen2: Any) -> None:
    engine = Engine(qwen2, num_slots=1)
    engine.submit([B])
    running = engine.generate([A])
    next(running)
    with pytest.raises(UsageError, match="another call is open"):
        next(engine.generate([Request("c", (3,), 1, SAMPLING)]))
    running.close()
    assert {key[0] for key in engine.states()} == {"b"}
    assert tokens(drain(engine)) == {key: t for key, t in whole(qwen2, B).items() if key == ("b", 1)}


@pytest.mark.parametrize("verb", ["step", "generate"])
def test_a_module_that_somebody_froze_in_eval_mode_stays_there(make_model: Any, verb: str) -> None:
    model = make_model("qwen2").train()
    model.model.layers[1].eval()
    before = {name: module.training for name, module in model.named_modules()}
    engine = Engine(model)
    if verb == "step":
        engine.submit([A])
        drain(engine)
    else:
        list(engine.generate([A]))
    assert {name: module.training for name, module in model.named_modules()} == before


def test_counts_and_traces_that_are_replaced_while_rollouts_are_paused_go_on(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.submit([A])
    engine.step()
    engine.pause([("a", 0)])
    drain(engine)
    engine.stats, engine.trace, engine.peak_kv_bytes = EngineStats(), [], 0
    engine.resume(["a"])
    drain(engine)
    assert engine.stats.tokens == 9 and len(engine.trace) == 1 and engine.peak_kv_bytes > 0


@pytest.mark.parametrize("ids", ["a", ("a", 1)])
def test_a_bare_id_is_refused(qwen2: Any, ids: Any) -> None:
    with pytest.raises(UsageError, match="wanted a list of request ids"):
        Engine(qwen2).abort(ids)


def test_a_scheduler_of_ones_own_is_empty_after_a_failure(qwen2: Any) -> None:
    engine = Engine(qwen2, scheduler=Continuous(Limits(num_slots=2)))
    engine.hooks.append(lambda view: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(engine.generate([A]))
    engine.hooks.clear()
    assert tokens(by_place(engine.generate([A]))) == whole(qwen2, A)
