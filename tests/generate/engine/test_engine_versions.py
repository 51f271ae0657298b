"""Which weights drew which token of a completion, when new weights come while it is made."""

from __future__ import annotations

import random
from typing import Any

import pytest

from podsrl.generate import Engine, Request, Sampling, StepView
from podsrl.types import Completion

SAMPLING = Sampling(temperature=0.7, max_new_tokens=10)
A, B = Request("a", (5, 7), 3, SAMPLING), Request("b", (9, 20, 31, 4), 2, SAMPLING)


def drain(engine: Engine) -> dict[tuple[str, int], Completion]:
    found = {}
    while engine.num_unfinished > 0:
        found |= {(c.request_id, c.index): c for c in engine.step()}
    return found


def test_tokens_of_one_version_need_no_list(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.load_weights([], 7)
    assert {(c.version, c.versions) for c in engine.generate([A, B])} == {(7, ())}


def test_a_hook_that_loads_weights_does_so_for_the_next_token(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.submit([A])

    def load(view: StepView) -> None:
        if view.num_tokens[0] == 2:
            engine.load_weights([], 5)
            engine.fork("a", 0, into="fork")

    engine.hooks.append(load)
    found = drain(engine)
    assert {completion.versions[:4] for completion in found.values()} == {(0, 0, 0, 5)}


def test_a_rollout_that_is_aborted_before_a_new_token_has_the_old_version_alone(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.submit([A])
    engine.step()
    engine.load_weights([], 1)
    engine.abort(["a"])
    assert {(len(c.token_ids), c.version, c.versions) for c in engine.step()} == {(1, 0, ())}


@pytest.mark.parametrize("scheduler", ["continuous", "dynamic+sjf", "probed+ljf"])
def test_whatever_waits_pauses_and_forks_every_token_has_the_version_that_the_engine_had(
    qwen2: Any, scheduler: str
) -> None:
    for seed in range(4):
        rng = random.Random(seed)
        engine = Engine(qwen2, num_slots=3, scheduler=scheduler)
        drawn_by: dict[tuple[str, int], dict[int, int]] = {}

        def watch(view: StepView, engine: Engine = engine, drawn_by: Any = drawn_by) -> None:
            for key, num_tokens in zip(view.keys, view.num_tokens, strict=True):
                drawn_by.setdefault(key, {})[num_tokens] = engine.version

        engine.hooks.append(watch)
        engine.submit([A, B])
        found = {}
        for step in range(14):
            for completion in engine.step():
                found[completion.request_id, completion.index] = completion
            alive = list(engine.states())
            if alive:
                rng.choice([engine.pause, engine.resume])(rng.sample(alive, 1))
            if rng.random() < 0.4:
                engine.load_weights([], engine.version + 1)
            if step == 4 and alive:
                source = rng.choice(alive)
                drawn_by["fork", 0] = dict(drawn_by.get(source, {}))
                engine.fork(*source, into="fork")
        engine.resume(list(engine.states()))
        found |= drain(engine)
        assert len(found) == 6
        for key, completion in found.items():
            wanted = [drawn_by[key][i] for i in range(len(completion.token_ids))]
            versions = completion.versions or (completion.version,) * len(wanted)
            assert list(versions) == wanted, (key, seed)
            assert completion.version == wanted[0] and bool(completion.versions) == (len(set(wanted)) > 1)
