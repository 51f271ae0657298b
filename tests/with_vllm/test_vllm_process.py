"""What vLLM in this process leaves as it was, and what cannot be beside it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from contract import (
    LONG_PROMPT,
    LONGEST,
    MAX_GAP,
    PROMPT,
    Models,
    drain,
    largest_gap,
    new_models,
    setting_of,
    temporary,
)

from podsrl.errors import UsageError
from podsrl.generate import Generator, Request, Sampling
from podsrl.generate.vllm.make import make_vllm


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return new_models(tmp_path_factory.mktemp("process") / "model")


def trace() -> dict[str, Any]:
    """What training in this process depends on."""
    return {
        "python": random.getstate(),
        "numpy": repr(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "set_num_threads": torch.set_num_threads,
        "dtype": torch.get_default_dtype(),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "cores": os.sched_getaffinity(0),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    }


@pytest.fixture(scope="module")
def changed(models: Models) -> dict[str, list[str]]:
    """Stage of a generator's life -> what it changed."""
    found: dict[str, list[str]] = {}

    def note(stage: str, before: dict[str, Any]) -> None:
        after = trace()
        found[stage] = [name for name, value in before.items() if after[name] != value]

    before = trace()
    generator = make_vllm(setting_of(models))
    note("start", before)
    before = trace()
    list(generator.generate([Request("a", PROMPT, 4, Sampling(max_new_tokens=8, stop_token_ids=()))]))
    note("generate", before)
    before = trace()
    generator.load_weights(temporary(models.second), 1)
    note("load_weights", before)
    before = trace()
    generator.first_logprob(PROMPT)
    note("first_logprob", before)
    before = trace()
    generator.close()
    note("close", before)
    return found


@pytest.mark.parametrize("stage", ["start", "generate", "load_weights", "first_logprob", "close"])
def test_random_numbers_threads_and_environment_stay_as_they_were(changed: dict[str, list[str]], stage: str) -> None:
    assert changed[stage] == []


def test_an_option_that_vllm_does_not_know_is_an_error(models: Models) -> None:
    with pytest.raises(UsageError, match="no_such_option"):
        make_vllm(setting_of(models), no_such_option=1)


@pytest.fixture(scope="module")
def generator(models: Models, changed: dict[str, list[str]]) -> Iterator[Generator]:
    generator = make_vllm(setting_of(models, num_slots=2, scheduler="continuous+breadth"))
    yield generator
    generator.close()
    assert not torch.distributed.is_initialized()


def test_a_second_one_in_this_process_is_an_error(generator: Generator, models: Models) -> None:
    with pytest.raises(UsageError, match=r"scale\.generators = 1"):
        make_vllm(setting_of(models))


def test_slots_and_refill_order_are_vllms(generator: Generator) -> None:
    """The second rollout of the first group waits until the first one of every group has begun."""
    assert "at most 2 rollouts" in generator.describe([Request("a", PROMPT)])
    groups = [Request(name, PROMPT, 2, Sampling(max_new_tokens=9, stop_token_ids=())) for name in ("a", "b")]
    ends = [(done.group_id, done.index) for done in generator.generate(groups)]
    assert set(ends[:2]) == {("a", 0), ("b", 0)} and len(ends) == 4


def test_what_waits_for_a_slot_begins_with_new_weights(generator: Generator, models: Models) -> None:
    """Prompts that the old weights have read too."""
    sampling, before = Sampling(max_new_tokens=9, stop_token_ids=()), generator.version
    generator.submit([Request("a", LONG_PROMPT, 4, sampling)])
    assert not any(generator.poll() for _ in range(3))
    generator.load_weights(temporary(models.second), before + 1)
    found = drain(generator)
    generator.load_weights(temporary(models.first), before)
    for index in range(4):
        done = found["a", index]
        assert (done.version, len(set(done.versions))) == ((before, 2) if index < 2 else (before + 1, 0))
        assert index < 2 or largest_gap(models.second, LONG_PROMPT, done, sampling) < MAX_GAP


def test_what_does_not_fit_is_an_error(generator: Generator) -> None:
    with pytest.raises(UsageError, match="max_model_len"):
        generator.describe([Request("a", PROMPT, 1, Sampling(max_new_tokens=LONGEST, stop_token_ids=()))])
    with pytest.raises(UsageError, match="watch"):
        generator.submit([Request("a", PROMPT)], watch=lambda live: ())
    with pytest.raises(UsageError, match="temperature = 3"):
        generator.generate([Request("a", PROMPT, 1, Sampling(temperature=3.0))])
    with pytest.raises(UsageError, match="rollout 0 of request 'a' runs already, or is asked for twice"):
        generator.generate([Request("a", PROMPT), Request("a", PROMPT)])
    with pytest.raises(UsageError, match="'a': vLLM does not take it"):
        generator.submit([Request("b", PROMPT, 2), Request("a", (10**6,))])
    assert generator.num_unfinished == 0


def test_stats_count_tokens(generator: Generator) -> None:
    before = generator.stats.tokens
    done = list(generator.generate([Request("a", PROMPT, 4, Sampling(max_new_tokens=6, stop_token_ids=()))]))
    assert generator.stats.tokens - before == sum(len(each.token_ids) for each in done) == 24
    assert generator.stats.prompt_tokens > 0 and generator.stats.steps > 0
