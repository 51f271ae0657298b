"""The engine on a pretended GPU draws the CPU's tokens, however it schedules and remembers.

A rounding could decide about a token only where its random number lies within about 1e-6 of a boundary between two;
with these seeds and weights none lies within 2e-5.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from small_runs import Tokens, generated, requests, tiny

from podsrl.generate import Engine, Live, Request, Sampling
from podsrl.types import Rollout

WAYS = {"nucleus": {"top_p": 0.8, "temperature": 0.7}, "greedy": {"top_k": 1}, "likely": {"min_p": 0.2}}
ROOMS = [{}, {"num_slots": 3}, {"kv_cache_bytes": 120_000}]


@cache
def expected(family: str = "qwen2") -> tuple[Tokens, dict[Any, list[float]]]:
    return generated(tiny("cpu", family))


def assert_same(found: tuple[Tokens, dict[Any, list[float]]], wanted: tuple[Tokens, dict[Any, list[float]]]) -> None:
    """The same tokens and ends. Log-probs differ by some hundred roundings of 6e-8 (norms are float32), of about 10."""
    assert found[0] == wanted[0]
    for key, logprobs in wanted[1].items():
        assert found[1][key] == pytest.approx(logprobs, abs=1e-4)


@pytest.mark.parametrize("room", ROOMS, ids=["all", "slots", "bounded"])
@pytest.mark.parametrize("scheduler", ["continuous", "continuous+breadth", "dynamic"])
@pytest.mark.parametrize("forward", ["fast", "model"])
def test_every_schedule_draws_the_cpus_tokens(forward: str, scheduler: str, room: dict[str, int]) -> None:
    found = generated(tiny("cuda"), forward=forward, scheduler=scheduler, **room)
    assert_same(found, expected())


@pytest.mark.parametrize("forward", ["fast", "model"])
@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_every_family_draws_the_cpus_tokens_all_at_once(forward: str, family: str) -> None:
    found = generated(tiny("cuda", family), forward=forward)
    assert_same(found, expected(family))


def test_rollouts_sampled_in_different_ways_draw_the_cpus_tokens() -> None:
    wanted = generated(tiny("cpu"), requests(**WAYS))
    assert_same(generated(tiny("cuda"), requests(**WAYS), forward="fast", num_slots=7), wanted)


def steered(device: str, forward: Any) -> list[Rollout]:
    """Rollouts that are forked and aborted, weights that change under them, and one that meets NaN."""
    model = tiny(device)
    with torch.no_grad():
        model.model.embed_tokens.weight[60] = torch.nan
    engine = Engine(model, seed=1, forward=forward)
    engine.submit([*requests(), Request("broken", (5, 60), 2, Sampling(max_new_tokens=4, stop_token_ids=()))])
    done = [each for _ in range(3) for each in engine.poll()]
    engine.fork("r3", 0, num_rollouts=2)
    done += engine.poll()
    engine.abort([("r3", 1)])
    done += engine.poll()
    engine.load_weights([(name, weight * 0.9) for name, weight in model.named_parameters()], version=1)
    while engine.num_unfinished:
        done += engine.poll()
    return sorted(done, key=lambda each: (each.group_id, each.index))


@pytest.mark.parametrize("forward", ["fast", "model"])
def test_steered_rollouts_draw_the_cpus_tokens(forward: str) -> None:
    wanted, found = steered("cpu", "model"), steered("cuda", forward)
    assert {each.finish_reason or each.status for each in wanted} >= {"length", "open", "failed"}
    names = ("group_id", "index", "token_ids", "status", "finish_reason", "version")
    assert [[getattr(each, name) for name in names] for each in found] == [
        [getattr(each, name) for name in names] for each in wanted
    ]


class Devices:
    """A watch that notes where tensors are."""

    at = None

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def look(self, live: Live) -> tuple[()]:
        self.seen |= {tensor.device.type for tensor in (live.logits, live.row_of, live.entropies)}
        return ()


def test_a_watch_sees_tensors_of_the_device() -> None:
    engine, watch = Engine(tiny("cuda"), seed=3), Devices()
    list(engine.generate(requests(), watch=watch))
    assert watch.seen == {"cuda"}


@pytest.mark.parametrize("forward", ["fast", "model"])
def test_float32_draws_the_same_tokens(forward: str) -> None:
    assert_same(generated(tiny("cuda", dtype=torch.float32), forward=forward), expected())
