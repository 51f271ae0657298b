"""Steering from outside: arrivals, forks, watches, weights. None of them changes another rollout's tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from contract import begun, behind_old_keys, by_place, drain

from made import end_of
from podsrl.errors import UsageError
from podsrl.generate import End, Engine, EngineStats, Fork, Hold, Live, Note, Request, Sampling
from podsrl.generate.schedule.continuous import Continuous
from podsrl.generate.schedule.job import Limits
from podsrl.types import Notes, Rollout

Key = tuple[str, int]
SAMPLING = Sampling(temperature=0.7, max_new_tokens=10, stop_token_ids=())
LONG = (9, 20, 31, 4, 50, 11, 8)


def tokens(completions: dict[Key, Rollout]) -> dict[Key, tuple[int, ...]]:
    return {key: completion.token_ids for key, completion in completions.items()}


def whole(model: Any, *requests: Request) -> dict[Key, tuple[int, ...]]:
    """Every request alone, undisturbed."""
    return {k: v for r in requests for k, v in tokens(by_place(Engine(model).generate([r]))).items()}


A, B = Request("a", (5, 7), 3, SAMPLING), Request("b", LONG, 2, SAMPLING)


# --- arrivals ---


def test_rollouts_that_would_draw_the_same_tokens_at_once_are_an_error(qwen2: Any) -> None:
    def part(first: int) -> Request:
        return replace(A, num_rollouts=2, first_index=first)

    engine = Engine(qwen2)
    engine.submit([A])
    engine.abort([("a", 1)])  # it is still to come
    for wanted, first, twice in (([part(2)], 2, 2), ([part(0)], 0, 0), ([part(1)], 1, 1), ([part(3), part(4)], 4, 4)):
        with pytest.raises(UsageError, match=rf"'a' with first_index = {first}: rollout {twice} of this group is unf"):
            engine.submit(wanted)
    assert set(engine.states()) == {("a", 0), ("a", 2)}
    engine.poll()
    engine.submit([replace(A, num_rollouts=1, first_index=1)])
    assert tokens(drain(engine)) == whole(qwen2, A)


# --- forks ---


def test_a_fork_of_a_live_rollout_costs_no_row_until_it_differs(qwen2: Any) -> None:
    greedy = Request("g", (5, 7), 1, Sampling(top_k=1, max_new_tokens=10, stop_token_ids=()))
    engine = Engine(qwen2)
    engine.submit([greedy])
    engine.poll()
    assert engine.fork("g", 0, num_rollouts=5) == [("g", i) for i in range(1, 6)]
    found = drain(engine)
    assert set(tokens(found).values()) == set(whole(qwen2, greedy).values())
    assert engine.stats.rows_used == 1 and engine.stats.slots_used == 6


def test_a_fork_behind_some_of_the_tokens_goes_on_as_what_begins_with_them(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.submit([A])
    for _ in range(6):
        engine.poll()
    [plain] = engine.fork("a", 0, num_tokens=2)
    [other] = engine.fork("a", 0, num_tokens=2, token=9)
    [again] = engine.fork("a", 0, num_tokens=0)
    for num_tokens in (-1, 7):
        with pytest.raises(UsageError, match=rf"fork of \('a', 0\) behind {num_tokens} tokens: wanted 0 \.\. 6"):
            engine.fork("a", 0, num_tokens=num_tokens)
    found = drain(engine)
    first = found["a", 0].token_ids[:2]
    begins = {plain: (first, ()), other: ((*first, 9), ((2, 3),)), again: ((), ())}
    for key, (start, given) in begins.items():
        starts = {key[1]: begun(found[key], len(start), given)} if start else {}
        [alone] = Engine(qwen2).generate([replace(A, num_rollouts=1, first_index=key[1], starts=starts)])
        assert found[key].token_ids[: len(start)] == start and found[key].given == given
        assert found[key].token_ids == alone.token_ids
    assert tokens({key: found[key] for key in found if key[1] < 3}) == whole(qwen2, A)


@pytest.mark.parametrize(("token", "num_steps"), [(-1, 1), (10_000, 1), (3, 9), (98, 1)])
def test_a_token_that_is_none_ends_an_answer_or_has_no_room_is_not_set(qwen2: Any, token: int, num_steps: int) -> None:
    engine = Engine(qwen2)
    engine.submit([replace(A, sampling=replace(SAMPLING, stop_token_ids=(98,)))])
    for _ in range(num_steps):
        engine.poll()
    with pytest.raises(UsageError, match=rf"fork of \('a', 0\) with the token {token} behind {num_steps}: "):
        engine.fork("a", 0, token=token)
    assert tokens(drain(engine)) == whole(qwen2, A)


# --- watches ---


@dataclass
class Seeing:
    """A watch that is a function."""

    see: Callable[[Live], Any]
    at: frozenset[int] | None = None

    def look(self, live: Live) -> Iterable[End | Fork]:
        return self.see(live) or ()


def test_a_watch_sees_hidden_states_and_log_probabilities_of_the_live_rows(qwen2: Any) -> None:
    seen: dict[tuple[Key, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def look(live: Live) -> None:
        for key, num_tokens, row in zip(live.keys, live.num_tokens, live.row_of.tolist(), strict=True):
            seen[key, num_tokens] = (live.hidden[row].clone(), live.logprobs[row].clone())

    engine, model = Engine(qwen2, num_slots=2), copy.deepcopy(qwen2)  # asked for hidden states it keeps hooks
    found = by_place(engine.generate([A, B], watch=Seeing(look)))
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


@pytest.mark.parametrize("num_slots", [None, 1, 2])
def test_a_watch_sees_every_rollout_where_it_is_due_and_changes_nothing(qwen2: Any, num_slots: int | None) -> None:
    seen: list[tuple[Key, int]] = []
    engine = Engine(qwen2, num_slots=num_slots)
    watch = Seeing(lambda live: seen.extend(zip(live.keys, live.num_tokens, strict=True)), at=frozenset({0, 4, 7, 99}))
    assert tokens(by_place(engine.generate([A, B], watch=watch))) == whole(qwen2, A, B)
    assert sorted(seen) == [(key, count) for key in sorted(whole(qwen2, A, B)) for count in (0, 4, 7)]
    assert tokens(by_place(engine.generate([A, B]))) == whole(qwen2, A, B) and len(seen) == 15


@pytest.mark.parametrize("num_slots", [None, 1, 2])
def test_what_a_watch_ends_has_its_reason_and_its_tokens_and_the_others_go_on(
    qwen2: Any, num_slots: int | None
) -> None:
    def look(live: Live) -> list[Any]:
        acts: list[Any] = [End(("a", 0)), Hold(("b", 1)), End(("gone", 3))]
        return [act for act in acts if act.key in live.keys or act.key[0] == "gone"]

    expected, watch = whole(qwen2, A, B), Seeing(look, at=frozenset({6}))
    found = by_place(Engine(qwen2, num_slots=num_slots).generate([A, B], watch=watch))
    reasons = {key: end_of(done) for key, done in found.items()}
    assert reasons == {**dict.fromkeys(expected, "length"), ("a", 0): "pruned", ("b", 1): "open"}
    ended = {("a", 0), ("b", 1)}
    assert tokens(found) == {key: ids[:6] if key in ended else ids for key, ids in expected.items()}
    later = replace(B, num_rollouts=1, first_index=1, starts={1: found["b", 1]})
    [again] = Engine(qwen2).generate([later], watch=watch)  # what was held is not shown again where it stands
    assert again.token_ids == expected["b", 1]


@pytest.mark.parametrize("num_slots", [None, 1, 4])
def test_forks_of_a_watch_are_the_next_of_their_group_and_a_set_token_is_given(
    qwen2: Any, num_slots: int | None
) -> None:
    """Rollout 1 has two forks behind 3 tokens, and one with a token that is set; all are those that begin there."""

    def look(live: Live) -> list[Fork]:
        key = ("a", 1)
        return [Fork(key, 2), Fork(key, token=9)] if (key, 3) in zip(live.keys, live.num_tokens, strict=True) else []

    engine = Engine(qwen2, num_slots=num_slots)
    later = replace(A, num_rollouts=1, first_index=3)
    found = by_place(engine.generate([A, later], watch=Seeing(look, at=frozenset({3}))))
    expected = whole(qwen2, A)
    assert set(found) == {*expected, ("a", 3), ("a", 4), ("a", 5), ("a", 6)}
    assert {key: found[key].token_ids for key in expected} == expected
    start = begun(found["a", 1], 3)
    for index in (4, 5):
        request = Request(
            "a", A.prompt_ids, 1, SAMPLING, first_index=index, starts={index: replace(start, index=index)}
        )
        [alone] = Engine(qwen2).generate([request])
        assert (found["a", index].token_ids, found["a", index].given) == (alone.token_ids, ())
    made = found["a", 6]
    assert (made.token_ids[:4], made.given, len(made.token_ids)) == ((*start.token_ids, 9), ((3, 4),), 10)
    begins = begun(made, 4, given=made.given)
    [alone] = Engine(qwen2).generate([Request("a", A.prompt_ids, 1, SAMPLING, first_index=6, starts={6: begins})])
    assert made.token_ids == alone.token_ids


def test_all_that_runs_at_a_time_has_one_watch_or_none(qwen2: Any) -> None:
    seen, other = list[Key](), Seeing(lambda live: ())
    watch = Seeing(lambda live: seen.extend(live.keys), at=frozenset({1}))
    engine = Engine(qwen2)
    engine.submit([A], watch=watch)
    engine.poll()
    for wrong in (other, None):
        with pytest.raises(UsageError, match=r"submit with watch = .* while 3 rollouts are unfinished, whose watch is"):
            engine.submit([B], watch=wrong)
    engine.submit([B], watch=watch)
    assert tokens(drain(engine)) == whole(qwen2, A, B) and len(seen) == 5
    engine.submit([A])
    engine.poll()
    with pytest.raises(UsageError, match=r"while 3 rollouts are unfinished, whose watch is None"):
        engine.submit([B], watch=watch)
    assert tokens(drain(engine)) == whole(qwen2, A) and len(seen) == 5


def test_what_is_noted_goes_with_the_rollout_to_its_forks_its_end_and_where_it_goes_on(qwen2: Any) -> None:
    shown: list[tuple[Key, int, Notes]] = []

    def look(live: Live) -> list[Any]:
        seen = list(zip(live.keys, live.num_tokens, live.notes, strict=True))
        shown.extend(seen)
        acts: list[Any] = [Note(key, "seen", (key[1], count)) for key, count, _ in seen]
        return acts + [Fork(key) for key, count, _ in seen if (key, count) == (("a", 1), 2)]

    watch = Seeing(look, at=frozenset({2, 4}))
    found = by_place(Engine(qwen2).generate([A], watch=watch))
    assert {key: one.notes for key, one in found.items()} == {("a", i): Notes({"seen": (i, 4)}) for i in range(4)}
    before = {("a", i): Notes({"seen": (i if i < 3 else 1, 2)}) for i in range(4)}
    assert {key: notes for key, count, notes in shown if count == 4} == before
    request = Request(
        "a", A.prompt_ids, 1, SAMPLING, starts={0: replace(begun(found["a", 0], 3), notes=Notes({"b": 7}))}
    )
    assert next(Engine(qwen2).generate([request])).notes == Notes({"b": 7})


@pytest.mark.parametrize("options", [{}, {"num_slots": 1}, {"num_slots": 4}, {"kv_cache_bytes": 40 * 256}])
@pytest.mark.parametrize("at", [frozenset({3}), frozenset({0, 3})])
def test_every_rollout_is_shown_once_where_it_is_due_whatever_room_its_forks_have(
    qwen2: Any, options: Any, at: frozenset[int]
) -> None:
    """Each that is shown forks: three rollouts become six at 3 tokens; or six at none, and then twelve."""
    engine = Engine(qwen2, **options)
    found = by_place(engine.generate([A], watch=Seeing(lambda live: [Fork(key) for key in live.keys], at=at)))
    assert set(found) == {("a", i) for i in range(3 * 2 ** len(at))}
    assert all(len(done.token_ids) == 10 for done in found.values())


@pytest.mark.parametrize(
    ("acts", "named"),
    [
        ([Fork(("a", 9))], "fork of 'a', rollout 9: it is not alive"),
        ([("a", 0)], r"returned \('a', 0\)"),
        (7, "returned 7"),
        ([Fork(("a", 0), token=1.5)], r"fork of \('a', 0\) with the token 1\.5 "),  # type: ignore[arg-type]  # on purpose
    ],
)
def test_what_a_watch_cannot_do_is_one_line(qwen2: Any, acts: Any, named: str) -> None:
    engine = Engine(qwen2)
    with pytest.raises(UsageError, match=named):
        list(engine.generate([A], watch=Seeing(lambda live: acts)))
    assert engine.states() == {}


# --- new weights ---


def changed(model: Any) -> Any:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.3)
    return other


@pytest.mark.parametrize("num_slots", [None, 2, 4])
def test_what_runs_goes_on_behind_old_keys_and_what_starts_later_is_read_with_the_new_weights(
    make_model: Any, num_slots: int | None
) -> None:
    """With a bound some rollouts of a group run when the new weights come, and its prompt is kept for the others."""
    model = make_model("qwen2")
    before, other = copy.deepcopy(model), changed(model)
    plain = Sampling(max_new_tokens=10, stop_token_ids=())
    engine = Engine(model, num_slots=num_slots)
    engine.submit([replace(A, sampling=plain), replace(B, sampling=plain)])
    for _ in range(4):
        engine.poll()
    num_running = num_slots or 5
    assert [state for _, state in sorted(engine.states().items())] == ["running"] * num_running + ["waiting"] * (
        5 - num_running
    )
    engine.load_weights(other.named_parameters(), version=1)
    for place, (key, done) in enumerate(sorted(drain(engine).items())):
        prompt = (A if key[0] == "a" else B).prompt_ids
        is_old = place < num_running
        assert (done.version, done.versions) == ((0, (0,) * 4 + (1,) * 6) if is_old else (1, ()))
        wanted = behind_old_keys(before if is_old else other, other, prompt, done.token_ids, 4)
        np.testing.assert_allclose(done.logprobs, wanted, atol=1e-5)
    assert engine.stats.recomputed_tokens == 0


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


# --- what happens when things break ---


@pytest.mark.parametrize("options", [{}, {"scheduler": Continuous(Limits(num_slots=2))}], ids=["of the engine", "own"])
def test_after_a_failing_watch_engine_and_scheduler_are_empty_and_work_again(qwen2: Any, options: Any) -> None:
    engine = Engine(qwen2, **options)
    with pytest.raises(ZeroDivisionError):
        list(engine.generate([A, B], watch=Seeing(lambda live: 1 / 0)))
    assert engine.states() == {}
    assert tokens(by_place(engine.generate([A, B]))) == whole(qwen2, A, B)


# --- orders of events that once went wrong ---


@pytest.mark.parametrize("verb", ["raise", "end"])
def test_broken_numbers_never_outlive_the_rollouts_that_left_with_them(make_model: Any, verb: str) -> None:
    model = make_model("qwen2")
    good = {name: p.detach().clone() for name, p in model.named_parameters()}
    engine = Engine(model)
    wanted = whole(copy.deepcopy(model), A, B)
    broken = ((name, torch.full_like(p, torch.nan)) for name, p in good.items())

    def leave(live: Live) -> list[End]:
        if verb == "raise":
            raise ZeroDivisionError
        return [End(key) for key in live.keys]

    engine.load_weights(broken, version=1)
    with pytest.raises(ZeroDivisionError) if verb == "raise" else nullcontext():
        list(engine.generate([A, B], watch=Seeing(leave)))
    engine.load_weights(good.items(), version=2)
    engine.abort(["a", "b"])
    engine.poll()
    found = by_place(engine.generate([A, B]))
    assert tokens(found) == wanted and {c.version for c in found.values()} == {2}


def test_counts_that_are_replaced_while_rollouts_run_go_on(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.submit([A])
    engine.poll()
    engine.stats, engine.peak_kv_bytes = EngineStats(), 0
    drain(engine)
    assert engine.stats.tokens == 27 and engine.peak_kv_bytes > 0


@pytest.mark.parametrize("ids", ["a", ("a", 1)])
def test_a_bare_id_is_refused(qwen2: Any, ids: Any) -> None:
    with pytest.raises(UsageError, match="wanted a list of groups' ids"):
        Engine(qwen2).abort(ids)
