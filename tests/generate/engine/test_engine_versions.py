"""Which weights drew which token of a completion, when new weights come while it is made."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from contract import by_place, drain

from podsrl.generate import Engine, Live, Request, Sampling

SAMPLING = Sampling(temperature=0.7, max_new_tokens=10)
A, B = Request("a", (5, 7), 3, SAMPLING), Request("b", (9, 20, 31, 4), 2, SAMPLING)


@dataclass
class Noting:
    """A watch that notes which version draws a rollout's next token."""

    engine: Engine
    drawn_by: dict[tuple[str, int], dict[int, int]]
    at: frozenset[int] | None = None

    def look(self, live: Live) -> tuple[()]:
        for key, num_tokens in zip(live.keys, live.num_tokens, strict=True):
            self.drawn_by.setdefault(key, {})[num_tokens] = self.engine.version
        return ()


def test_a_rollout_that_is_aborted_before_a_new_token_has_the_old_version_alone(qwen2: Any) -> None:
    engine = Engine(qwen2)
    engine.submit([A])
    engine.poll()
    engine.load_weights([], 1)
    engine.abort(["a"])
    assert {(len(c.token_ids), c.version, c.versions) for c in engine.poll()} == {(1, 0, ())}


@pytest.mark.parametrize("options", [{"num_slots": 3}, {"scheduler": "dynamic", "kv_cache_bytes": 3 * 13 * 256}])
def test_whatever_waits_leaves_and_forks_every_token_has_the_version_that_the_engine_had(
    qwen2: Any, options: Any
) -> None:
    for seed in range(4):
        rng = random.Random(seed)
        engine = Engine(qwen2, **options)
        drawn_by: dict[tuple[str, int], dict[int, int]] = {}

        watch = Noting(engine, drawn_by)
        engine.submit([A, B], watch=watch)
        found = {}
        for step in range(14):
            found |= by_place(engine.poll())
            alive = list(engine.states())
            if rng.random() < 0.4:
                engine.load_weights([], engine.version + 1)
            if step == 4 and alive:
                source = rng.choice(alive)
                [fork] = engine.fork(*source)
                drawn_by[fork] = dict(drawn_by.get(source, {}))
        found |= drain(engine)
        assert len(found) == 6
        for key, completion in found.items():
            wanted = [drawn_by[key][i] for i in range(len(completion.token_ids))]
            versions = completion.versions or (completion.version,) * len(wanted)
            assert list(versions) == wanted, (key, seed)
            assert completion.version == wanted[0] and bool(completion.versions) == (len(set(wanted)) > 1)
