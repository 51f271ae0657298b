"""Rollouts that go on from tokens that they have: they are those that were never stopped."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from contract import begun, by_place

from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling
from podsrl.types import Rollout

SAMPLING = Sampling(temperature=0.7, max_new_tokens=10)
PROMPT = (5, 7, 9)


@pytest.mark.parametrize("scheduler", ["continuous", "dynamic+breadth"])
def test_rollouts_that_are_cut_anywhere_draw_what_they_would_have_drawn(qwen2: Any, scheduler: str) -> None:
    whole = by_place(Engine(qwen2).generate([Request("q", PROMPT, 6, SAMPLING)]))
    for seed in range(3):
        rng = random.Random(seed)
        starts = {i: begun(whole["q", i], rng.randrange(10)) for i in range(6) if rng.random() < 0.7}
        engine = Engine(qwen2, num_slots=rng.choice([1, 2, None]), scheduler=scheduler)
        found = by_place(engine.generate([Request("q", PROMPT, 6, SAMPLING, starts=starts)]))
        for place, done in found.items():
            assert (done.token_ids, done.versions, done.given) == (whole[place].token_ids, (), ())
            np.testing.assert_allclose(done.logprobs, whole[place].logprobs, atol=1e-5)
        assert engine.stats.tokens == sum(10 - len(starts[i].token_ids) if i in starts else 10 for i in range(6))


def test_what_is_aborted_goes_on_with_new_weights_and_each_token_keeps_its_version(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.submit([Request("q", PROMPT, 2, SAMPLING)])
    for _ in range(4):
        engine.poll()
    engine.load_weights([], 3)
    engine.poll()
    engine.abort(["q"])
    starts = {done.index: done for done in engine.poll()}
    assert {(done.version, done.versions) for done in starts.values()} == {(0, (0, 0, 0, 0, 3))}
    engine.load_weights([], 4)
    for done in engine.generate([Request("q", PROMPT, 2, SAMPLING, starts=starts)]):
        assert (done.version, done.versions) == (0, (0, 0, 0, 0, 3, 4, 4, 4, 4, 4))


def test_given_tokens_are_no_policys(qwen2: Any) -> None:
    """A hint of two tokens, weights 5, and behind two more tokens weights 6."""
    hint = Rollout(
        group_id="g", status="open", index=0, token_ids=(11, 30), logprobs=(0.0, 0.0), version=0, given=((0, 2),)
    )
    engine = Engine(qwen2)
    engine.load_weights([], 5)
    [plain] = engine.generate([Request("q", PROMPT, 1, SAMPLING, starts={0: hint})])
    assert (plain.version, plain.versions, plain.given) == (5, (), ((0, 2),))
    assert (plain.token_ids[:2], plain.logprobs[:2], len(plain.token_ids)) == ((11, 30), (0.0, 0.0), 10)
    assert (plain.num_given, plain.num_drawn) == (2, 8)
    engine.submit([Request("q", PROMPT, 1, SAMPLING, starts={0: hint})])
    engine.poll()
    engine.poll()
    engine.fork("q", 0)
    engine.load_weights([], 6)
    found = []
    while engine.num_unfinished:
        found += engine.poll()
    assert {(each.version, each.versions, each.given) for each in found} == {(5, (5,) * 4 + (6,) * 6, ((0, 2),))}


def test_a_start_that_ends_before_it_runs_is_its_own_completion(qwen2: Any) -> None:
    start = Rollout(group_id="g", status="open", index=1, token_ids=(3,), logprobs=(-0.5,), version=2)
    engine = Engine(qwen2)
    engine.submit([Request("q", PROMPT, 1, SAMPLING, first_index=1, starts={1: start})])
    engine.abort(["q"])
    [done] = engine.poll()
    assert (done.token_ids, done.logprobs, done.version, done.status) == ((3,), (-0.5,), 2, "open")


FITS = {"index": 1, "token_ids": (3, 4), "logprobs": (0.0, -1.0), "version": 0}


@pytest.mark.parametrize(
    ("place", "changes", "named"),
    [
        (4, {"index": 4}, "starts\\[4\\] of request 'q'"),
        (0, {}, "starts\\[0\\] of request 'q' = rollout 1"),
        (1, {"token_ids": (3,) * 10, "logprobs": (-1.0,) * 10}, "10 tokens: wanted at most 9"),
        (1, {"logprobs": (0.0,)}, "not 0 versions, 1 log-probs"),
        (1, {"versions": (0,)}, "as many .* 1 versions"),
        (1, {"given": ((0, 3),)}, "stretches of 0 .. 2"),
        (1, {"given": ((1, 1),)}, "stretches of 0 .. 2"),
        (1, {"given": ((1, 2), (0, 1))}, "stretches of 0 .. 2"),
        (1, {"given": ((1, 2),)}, "the log-prob 0 of given tokens"),
        (1, {"token_ids": (3, 4.5)}, "integers"),
    ],
)
def test_a_start_that_cannot_be_gone_on_from_is_named(place: int, changes: dict[str, Any], named: str) -> None:
    Request("q", PROMPT, 3, SAMPLING, starts={1: Rollout(group_id="g", status="open", **FITS, given=((0, 1),))})
    with pytest.raises(UsageError, match=named):
        Request("q", PROMPT, 3, SAMPLING, starts={place: Rollout(group_id="g", status="open", **(FITS | changes))})


@pytest.mark.parametrize("token", [-1, 10_000])
def test_a_start_of_tokens_that_the_model_does_not_know_is_refused_before_it_runs(qwen2: Any, token: int) -> None:
    start = Rollout(
        group_id="g", status="open", index=0, token_ids=(token,), logprobs=(0.0,), version=0, given=((0, 1),)
    )
    with pytest.raises(UsageError, match=r"request 'q' has tokens from -?[0-9]+ to [0-9]+ in"):
        Engine(qwen2).generate([Request("q", PROMPT, 1, SAMPLING, starts={0: start})])
