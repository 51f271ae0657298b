"""Under random finish patterns every row keeps its own tokens: no row is lost, repeated or mixed up with another."""

from __future__ import annotations

import random
from typing import Any

import pytest

from podsrl.generate import Request, Sampling
from podsrl.generate.wave import Row, Wave

SAMPLING = Sampling(max_new_tokens=9)


def new_rows(rng: random.Random) -> list[Row]:
    """Up to 14 rows of prompts of 1 to 4 tokens, some prompts shared."""
    prompts = [tuple(rng.randrange(3, 99) for _ in range(rng.randrange(1, 5))) for _ in range(4)]
    return [Row(Request(f"{i}", rng.choice(prompts), 1, SAMPLING), 0) for i in range(rng.randrange(1, 15))]


@pytest.mark.parametrize("seed", range(25))
def test_random_aborts_leave_every_row_with_the_start_of_its_own_tokens(qwen2: Any, seed: int) -> None:
    rng = random.Random(seed)
    rows = new_rows(rng)
    whole = {row.request.id: tokens for row, tokens, _, _ in run_to_the_end(Wave(qwen2, rows, SAMPLING, seed))}
    assert whole.keys() == {row.request.id for row in rows}

    wave = Wave(qwen2, rows, SAMPLING, seed)
    live, num_steps = set(whole), 0
    while live:
        assert wave.num_live == len(live)
        aborted = {i for i in sorted(live) if rng.random() < 0.2}
        finished = {row.request.id: (tokens, reason) for row, tokens, _, reason in wave.step(aborted)}
        num_steps += 1
        is_last = num_steps == SAMPLING.max_new_tokens
        assert finished.keys() == (live if is_last else aborted)
        for i, (tokens, reason) in finished.items():
            assert tokens == whole[i][:num_steps]
            assert reason == ("length" if is_last else "aborted")
        live -= finished.keys()
    assert wave.num_live == 0 and wave.num_bytes == 0


def run_to_the_end(wave: Wave) -> list[Any]:
    finished: list[Any] = []
    while wave.num_live > 0:
        finished += wave.step(set())
    return finished
