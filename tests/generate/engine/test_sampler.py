"""The sampler draws from exactly the distribution whose log-probabilities it returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from loops import each
from podsrl.generate import Sampling
from podsrl.generate.engine import sampler as sampler_module
from podsrl.generate.engine.random_numbers import request_key, row_keys, uniforms_at
from podsrl.generate.engine.sampler import Drawn, draw, draw_mixed, filtered_logprobs

FILTERS = [
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(temperature=1.7),
    Sampling(top_k=4),
    Sampling(top_k=1),
    Sampling(top_p=0.8),
    Sampling(top_p=1e-9),
    Sampling(min_p=0.2),
    Sampling(temperature=0.8, top_k=9, top_p=0.9, min_p=0.05),
]
NAMES = [f"T{s.temperature}_k{s.top_k}_p{s.top_p}_m{s.min_p}" for s in FILTERS]


# --- the slow twin of the filters, one row and one token at a time, in plain Python floats ---

Probabilities = dict[int, float]


def slow_distribution(logits: Sequence[float], sampling: Sampling) -> Probabilities:
    """Token -> probability after temperature, top-k, top-p, min-p; a filtered token is not in it."""
    highest = max(logits)
    kept = {i: math.exp((x - highest) / sampling.temperature) for i, x in enumerate(logits) if x > -math.inf}
    if sampling.top_k:
        last = sorted(kept.values(), reverse=True)[: sampling.top_k][-1]
        kept = {i: weight for i, weight in kept.items() if weight >= last}
    kept = _normalised(kept)
    if sampling.top_p < 1:
        nucleus: Probabilities = {}
        for i in sorted(kept, key=lambda i: (-kept[i], i)):
            nucleus[i] = kept[i]
            if sum(nucleus.values()) >= sampling.top_p:
                break
        kept = nucleus
    if sampling.min_p:
        kept = {i: weight for i, weight in kept.items() if weight >= sampling.min_p * max(kept.values())}
    return _normalised(kept)


def _normalised(weights: Probabilities) -> Probabilities:
    total = math.fsum(weights.values())
    return {i: weight / total for i, weight in weights.items()}


# --- parts of the tests ---


def draws(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def numbers_for(count: int) -> Tensor:
    """A uniform number for each of `count` rollouts of one request."""
    keys = row_keys([request_key(4, "a")] * count, range(count))
    return torch.from_numpy(uniforms_at(keys, [0] * count))


def same(left: Tensor, right: Tensor) -> bool:
    """Bit for bit, NaN being equal to NaN."""
    return torch.equal(left.nan_to_num(7), right.nan_to_num(7))


def random_logits(rows: int, vocabulary: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 2


def check_rows(logits: Tensor, sampling: Sampling) -> None:
    for row, logprobs in zip(logits.tolist(), filtered_logprobs(logits, sampling).tolist(), strict=True):
        wanted = slow_distribution(row, sampling)
        assert {i for i, x in enumerate(logprobs) if x > -math.inf} == set(wanted)
        assert all(logprobs[i] == pytest.approx(math.log(p), abs=1e-5) for i, p in wanted.items())


@pytest.mark.parametrize("sampling", FILTERS, ids=NAMES)
def test_filters_equal_the_slow_twin_on_rows_full_of_ties_and_impossible_tokens(sampling: Sampling) -> None:
    logits = random_logits(200, 11, seed=1).mul(2).round().div(3)
    logits[torch.rand(logits.shape, generator=torch.Generator().manual_seed(2)) < 0.2] = -torch.inf
    logits[:, 5] = 0.0  # at least one token is possible
    check_rows(logits, sampling)


@pytest.mark.parametrize("sampling", FILTERS[1:], ids=NAMES[1:])
def test_filters_are_those_of_hugging_face_generate(sampling: Sampling) -> None:
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = random_logits(300, 23, seed=3)
    wanted = TemperatureLogitsWarper(sampling.temperature)(None, logits)
    if sampling.top_k:
        wanted = TopKLogitsWarper(sampling.top_k)(None, wanted)
    if sampling.top_p < 1:
        wanted = TopPLogitsWarper(sampling.top_p)(None, wanted)
    if sampling.min_p:
        wanted = MinPLogitsWarper(sampling.min_p)(None, wanted)
    torch.testing.assert_close(filtered_logprobs(logits, sampling), wanted.log_softmax(-1), atol=1e-5, rtol=0)


def test_a_nucleus_of_exactly_the_first_tokens_takes_no_further_one() -> None:
    for size, top_p, wanted in [(4, 0.5, 2), (10, 0.5, 5), (8, 0.75, 6), (5, 0.2, 1), (100, 0.9, 90)]:
        logprobs = filtered_logprobs(torch.zeros(1, size), Sampling(top_p=top_p))
        assert int((logprobs > -torch.inf).sum()) == wanted, (size, top_p)


def test_min_p_keeps_a_token_at_exactly_its_fraction() -> None:
    logits = torch.tensor([[0.8, 0.2, 0.1999]]).log()
    assert (filtered_logprobs(logits, Sampling(min_p=0.25))[0] > -torch.inf).tolist() == [True, True, False]


def test_tokens_are_the_inverse_of_the_cumulative_distribution() -> None:
    logits = torch.tensor([[0.1, 0.6, 0.3]]).log().expand(6, 3)
    drawn = draw(logits, None, draws(0.0, 0.09, 0.11, 0.69, 0.71, 0.999), Sampling())
    assert drawn.tokens.tolist() == [0, 0, 1, 1, 2, 2]
    wanted = [math.log(p) for p in (0.1, 0.1, 0.6, 0.6, 0.3, 0.3)]
    assert drawn.logprobs.tolist() == pytest.approx(wanted, abs=1e-6)


def chi_square(counts: list[int], wanted: dict[int, float]) -> float:
    total = sum(counts)
    return sum((counts[i] - total * p) ** 2 / (total * p) for i, p in wanted.items())


def limit(wanted: dict[int, float]) -> float:
    """Mean and four deviations of the statistic for a right sampler."""
    freedom = len(wanted) - 1
    return freedom + 4 * math.sqrt(2 * freedom)


LOGITS = [0.0, 2.0, -1.0, 1.0, 1.0, -3.0, 0.5, 2.5, -math.inf, 1.5, -0.5, 0.2]


@pytest.mark.parametrize("sampling", FILTERS, ids=NAMES)
def test_draws_follow_the_exact_distribution(sampling: Sampling) -> None:
    size = 40_000
    rows = torch.arange(size) % 3  # three equal rows, so that a rollout's row does not matter either
    drawn = draw(torch.tensor([LOGITS] * 3), rows, numbers_for(size), sampling)
    wanted = slow_distribution(LOGITS, sampling)
    counts = torch.bincount(drawn.tokens, minlength=len(LOGITS)).tolist()
    assert sum(counts[i] for i in wanted) == size
    assert chi_square(counts, wanted) <= limit(wanted)
    for i in wanted:
        logprobs = drawn.logprobs[drawn.tokens == i]
        assert logprobs.tolist() == pytest.approx([math.log(wanted[i])] * len(logprobs), abs=1e-5)


@each("uniform", [0.0, 0.25, 0.5, 0.75, 1 - 2.0**-53])
@pytest.mark.parametrize("copied_elements", [0, 1 << 18], ids=["halved", "copied"])
@each("sampling", [Sampling(), Sampling(top_k=2), Sampling(top_p=0.7), Sampling(min_p=0.3)])
def test_a_token_of_probability_zero_is_never_drawn(
    monkeypatch: pytest.MonkeyPatch, uniform: float, sampling: Sampling, copied_elements: int
) -> None:
    monkeypatch.setattr(sampler_module, "_COPIED_ELEMENTS", copied_elements)
    impossible = -torch.inf
    logits = torch.tensor([[impossible, 1.0, impossible, 1.0, -200.0, impossible]])
    assert draw(logits, torch.tensor([0]), draws(uniform), sampling).tokens.tolist() == [1 if uniform < 0.5 else 3]


@pytest.mark.parametrize("row_of", [None, torch.arange(20)], ids=["own rows", "halved"])
def test_the_largest_uniform_number_draws_the_last_possible_token_of_a_large_vocabulary(row_of: Tensor | None) -> None:
    logits = random_logits(20, 50_000, seed=5)
    logits[:, -3:] = -torch.inf
    drawn = draw(logits, row_of, draws(*[1 - 2.0**-53] * 20), Sampling())
    assert drawn.tokens.tolist() == [49_996] * 20
    assert drawn.logprobs.isfinite().all()


def test_sums_over_a_large_vocabulary_are_exact_enough_to_tell_every_token() -> None:
    size = 200_000
    wanted = torch.arange(0, size, 997)
    numbers = (wanted.double() + 1e-3) / size  # as close to the edge as float32 could not tell
    drawn = draw(torch.zeros(1, size), torch.zeros_like(wanted), numbers, Sampling())
    assert torch.equal(drawn.tokens, wanted)


# --- rollouts that stand on shared rows ---


@pytest.mark.parametrize("copied_elements", [0, 1 << 18], ids=["halved", "copied"])
@each("vocabulary", [1, 2, 3, 17, 64])
@each("sampling", FILTERS)
def test_rollouts_on_a_shared_row_draw_what_each_would_from_a_row_of_its_own(
    monkeypatch: pytest.MonkeyPatch, sampling: Sampling, vocabulary: int, copied_elements: int
) -> None:
    logits = random_logits(7, vocabulary)
    logits[3, 0] = torch.nan
    row_of = torch.randint(7, (60,), generator=torch.Generator().manual_seed(1))
    row_of[row_of == 5] = 0  # a row that nobody stands on
    alone = draw(logits[row_of], None, numbers_for(60), sampling)
    monkeypatch.setattr(sampler_module, "_COPIED_ELEMENTS", copied_elements)
    shared = draw(logits, row_of, numbers_for(60), sampling)
    assert torch.equal(shared.tokens, alone.tokens)
    assert same(shared.logprobs, alone.logprobs)
    assert shared.logprobs.isnan().tolist() == (row_of == 3).tolist()


@each("elements", [1, 20, 21, 100])
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("sampling", [FILTERS[0], FILTERS[-1]], ids=["plain", "filtered"])
def test_rows_taken_in_chunks_give_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch, elements: int, is_shared: bool, sampling: Sampling
) -> None:
    logits = random_logits(23, 10)
    logits[4] = torch.nan
    row_of = torch.arange(70) * 5 % 17 if is_shared else None  # rows 17 to 22 have nobody
    numbers = numbers_for(70 if is_shared else 23)
    whole = draw(logits, row_of, numbers, sampling)
    monkeypatch.setattr(sampler_module, "_CPU_CHUNK_ELEMENTS", elements)
    chunked = draw(logits, row_of, numbers, sampling)
    assert torch.equal(whole.tokens, chunked.tokens)
    assert same(whole.logprobs, chunked.logprobs)


def test_a_large_vocabulary_is_never_copied_for_every_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    select = torch.Tensor.index_select

    def watched(self: Tensor, *args: Any) -> Tensor:
        result = select(self, *args)
        seen.append(result.numel())
        return result

    monkeypatch.setattr(torch.Tensor, "index_select", watched)
    draw(random_logits(2, 30_000), torch.arange(64) % 2, numbers_for(64), Sampling())
    assert max(seen) == 64


# --- several ways of sampling in one batch ---


@pytest.mark.parametrize("is_shared", [False, True])
def test_rollouts_sampled_in_different_ways_draw_what_they_would_among_their_own_kind(is_shared: bool) -> None:
    count = 54
    logits = random_logits(12 if is_shared else count, 19)
    logits[2] = torch.inf
    row_of = torch.arange(count) * 7 % 12 if is_shared else None
    sampling_of = np.arange(count) % len(FILTERS)
    mixed = draw_mixed(logits, row_of, numbers_for(count), FILTERS, sampling_of)
    for i, sampling in enumerate(FILTERS):
        members = torch.from_numpy(np.flatnonzero(sampling_of == i))
        rows = members if row_of is None else row_of[members]
        alone = draw(logits[rows], None, numbers_for(count)[members], sampling)
        assert torch.equal(mixed.tokens[members], alone.tokens)
        assert same(mixed.logprobs[members], alone.logprobs)


def test_samplings_that_differ_only_in_how_a_completion_ends_are_drawn_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Sampling] = []

    def watched(logits: Tensor, row_of: Tensor | None, uniform: Tensor, sampling: Sampling) -> Drawn:
        calls.append(sampling)
        return draw(logits, row_of, uniform, sampling)

    monkeypatch.setattr(sampler_module, "draw", watched)
    hot = [Sampling(max_new_tokens=n, stop_token_ids=(n,), stop_strings=("x" * n,)) for n in (1, 2, 3)]
    logits, numbers = random_logits(9, 30), numbers_for(9)
    mixed = draw_mixed(logits, None, numbers, hot, np.arange(9) % 3)
    assert len(calls) == 1
    assert torch.equal(mixed.tokens, draw(logits, None, numbers, Sampling()).tokens)
    draw_mixed(logits, None, numbers, [*hot, Sampling(top_k=2)], np.arange(9) % 4)
    assert len(calls) == 3


# --- broken logits, half precision ---


@pytest.mark.parametrize("copied_elements", [0, 1 << 18], ids=["halved", "copied"])
@each("is_shared", [False, True])
@each("sampling", FILTERS)
def test_broken_logits_give_nan_in_their_own_row_only(
    monkeypatch: pytest.MonkeyPatch, sampling: Sampling, is_shared: bool, copied_elements: int
) -> None:
    monkeypatch.setattr(sampler_module, "_COPIED_ELEMENTS", copied_elements)
    logits = random_logits(6, 12)
    row_of = torch.arange(6) if is_shared else None
    numbers = draws(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    healthy = draw(logits, row_of, numbers, sampling)
    broken = logits.clone()
    broken[1, 3] = torch.nan
    broken[3, 0] = torch.inf
    broken[4] = -torch.inf
    found = draw(broken, row_of, numbers, sampling)
    assert found.logprobs.isnan().tolist() == [False, True, False, True, True, False]
    assert found.tokens[[1, 3, 4]].tolist() == [0, 0, 0]
    assert torch.equal(found.tokens[[0, 2, 5]], healthy.tokens[[0, 2, 5]])
    assert torch.equal(found.logprobs[[0, 2, 5]], healthy.logprobs[[0, 2, 5]])


def test_half_precision_logits_are_taken_and_nothing_is_written_into_what_is_given() -> None:
    logits, row_of = random_logits(3, 9).bfloat16(), torch.tensor([0, 2, 1, 2])
    numbers = draws(0.1, 0.4, 0.6, 0.9)
    before = logits.clone(), row_of.clone(), numbers.clone()
    sampling = Sampling(top_p=0.9, top_k=5, min_p=0.1, temperature=0.9)
    drawn = draw(logits, row_of, numbers, sampling)
    draw_mixed(logits, row_of, numbers, [sampling, Sampling()], np.array([0, 1, 1, 0]))
    assert torch.equal(logits, before[0]) and torch.equal(row_of, before[1]) and torch.equal(numbers, before[2])
    assert drawn.logprobs.dtype == torch.float32 and drawn.tokens.dtype == torch.int64
    assert torch.equal(drawn.tokens, draw(logits.float(), row_of, numbers, sampling).tokens)
