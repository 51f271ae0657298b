"""The sampler draws from exactly the distribution whose log-probabilities it returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from podsrl.generate import Sampling
from podsrl.generate import sampler as sampler_module
from podsrl.generate.random import uniforms
from podsrl.generate.sampler import filtered_logprobs, sample

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


def draws(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_logits(rows: int, vocabulary: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 2


def check_rows(logits: Tensor, sampling: Sampling, distribution: Callable[..., dict[int, float]]) -> None:
    for row, logprobs in zip(logits.tolist(), filtered_logprobs(logits, sampling).tolist(), strict=True):
        wanted = distribution(row, sampling)
        assert {i for i, x in enumerate(logprobs) if x > -math.inf} == set(wanted)
        assert all(logprobs[i] == pytest.approx(math.log(p), abs=1e-5) for i, p in wanted.items())


@pytest.mark.parametrize("sampling", FILTERS, ids=NAMES)
def test_filters_equal_the_slow_twin_on_random_rows(sampling: Sampling, distribution: Any) -> None:
    check_rows(random_logits(200, 17), sampling, distribution)


@pytest.mark.parametrize("sampling", FILTERS, ids=NAMES)
def test_filters_equal_the_slow_twin_on_rows_full_of_ties_and_impossible_tokens(
    sampling: Sampling, distribution: Any
) -> None:
    logits = random_logits(200, 11, seed=1).mul(2).round().div(3)
    logits[torch.rand(logits.shape, generator=torch.Generator().manual_seed(2)) < 0.2] = -torch.inf
    logits[:, 5] = 0.0  # at least one token is possible
    check_rows(logits, sampling, distribution)


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


def test_all_tokens_tied_at_the_kth_place_stay() -> None:
    logprobs = filtered_logprobs(torch.tensor([[1.0, 3.0, 1.0, 0.0, 1.0]]), Sampling(top_k=2))
    assert (logprobs[0] > -torch.inf).tolist() == [True, True, True, False, True]


def test_a_nucleus_takes_tied_tokens_by_their_id_and_stops_when_it_has_enough() -> None:
    logprobs = filtered_logprobs(torch.zeros(1, 8), Sampling(top_p=0.3))
    assert logprobs[0].exp().tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0, 0, 0, 0, 0])


def test_a_nucleus_of_exactly_the_first_tokens_takes_no_further_one() -> None:
    for size, top_p, wanted in [(4, 0.5, 2), (10, 0.5, 5), (8, 0.75, 6), (5, 0.2, 1), (100, 0.9, 90)]:
        logprobs = filtered_logprobs(torch.zeros(1, size), Sampling(top_p=top_p))
        assert int((logprobs > -torch.inf).sum()) == wanted, (size, top_p)


def test_min_p_keeps_a_token_at_exactly_its_fraction() -> None:
    logits = torch.tensor([[0.8, 0.2, 0.1999]]).log()
    assert (filtered_logprobs(logits, Sampling(min_p=0.25))[0] > -torch.inf).tolist() == [True, True, False]


def test_tokens_are_the_inverse_of_the_cumulative_distribution() -> None:
    logits = torch.tensor([[0.1, 0.6, 0.3]]).log().expand(6, 3)
    tokens, logprobs = sample(logits, draws(0.0, 0.09, 0.11, 0.69, 0.71, 0.999), Sampling())
    assert tokens.tolist() == [0, 0, 1, 1, 2, 2]
    wanted = [math.log(p) for p in (0.1, 0.1, 0.6, 0.6, 0.3, 0.3)]
    assert logprobs.tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("sampling", FILTERS, ids=NAMES)
def test_draws_follow_the_exact_distribution(sampling: Sampling, distribution: Any) -> None:
    logits = [0.0, 2.0, -1.0, 1.0, 1.0, -3.0, 0.5, 2.5, -math.inf, 1.5, -0.5, 0.2]
    ids = [f"request {i}" for i in range(100)]
    numbers = uniforms(4, [i for i in ids for _ in range(40)], list(range(40)) * 100, 10).reshape(-1)
    tokens, logprobs = sample(torch.tensor(logits).expand(len(numbers), -1), torch.from_numpy(numbers), sampling)
    wanted = distribution(logits, sampling)
    counts = torch.bincount(tokens, minlength=len(logits)).tolist()
    assert sum(counts[i] for i in wanted) == len(numbers) == 40_000
    chi_square = sum((counts[i] - 40_000 * p) ** 2 / (40_000 * p) for i, p in wanted.items())
    freedom = len(wanted) - 1
    assert chi_square <= freedom + 4 * math.sqrt(2 * freedom)
    for i in wanted:
        drawn = logprobs[tokens == i]
        assert drawn.tolist() == pytest.approx([math.log(wanted[i])] * len(drawn), abs=1e-5)


@pytest.mark.parametrize("uniform", [0.0, 0.25, 0.5, 0.75, 1 - 2.0**-53])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_k=2), Sampling(top_p=0.7), Sampling(min_p=0.3)])
def test_a_token_of_probability_zero_is_never_drawn(uniform: float, sampling: Sampling) -> None:
    impossible = -torch.inf
    logits = torch.tensor([[impossible, 1.0, impossible, 1.0, -200.0, impossible]])
    assert int(sample(logits, draws(uniform), sampling)[0]) in {1, 3}


def test_the_largest_uniform_number_draws_the_last_possible_token_of_a_large_vocabulary() -> None:
    logits = random_logits(20, 50_000, seed=5)
    logits[:, -3:] = -torch.inf
    tokens, logprobs = sample(logits, draws(*[1 - 2.0**-53] * 20), Sampling())
    assert tokens.tolist() == [49_996] * 20
    assert logprobs.isfinite().all()


@pytest.mark.parametrize("elements", [1, 20, 21, 100])
@pytest.mark.parametrize("sampling", [FILTERS[0], FILTERS[-1]], ids=["plain", "filtered"])
def test_rows_taken_in_chunks_give_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch, elements: int, sampling: Sampling
) -> None:
    logits = random_logits(23, 10)
    logits[4] = torch.nan
    numbers = torch.from_numpy(uniforms(0, ["a"] * 23, list(range(23)), 1)[:, 0])
    tokens, logprobs = sample(logits, numbers, sampling)
    monkeypatch.setattr(sampler_module, "_CHUNK_ELEMENTS", elements)
    chunked_tokens, chunked_logprobs = sample(logits, numbers, sampling)
    assert torch.equal(tokens, chunked_tokens)
    assert torch.equal(logprobs.nan_to_num(7), chunked_logprobs.nan_to_num(7))


@pytest.mark.parametrize("sampling", FILTERS, ids=NAMES)
def test_broken_logits_give_nan_in_their_own_row_only(sampling: Sampling) -> None:
    logits = random_logits(6, 12)
    numbers = draws(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    tokens, logprobs = sample(logits, numbers, sampling)
    broken = logits.clone()
    broken[1, 3] = torch.nan
    broken[3, 0] = torch.inf
    broken[4] = -torch.inf
    broken_tokens, broken_logprobs = sample(broken, numbers, sampling)
    assert broken_logprobs.isnan().tolist() == [False, True, False, True, True, False]
    assert broken_tokens[[1, 3, 4]].tolist() == [0, 0, 0]
    assert torch.equal(broken_tokens[[0, 2, 5]], tokens[[0, 2, 5]])
    assert torch.equal(broken_logprobs[[0, 2, 5]], logprobs[[0, 2, 5]])


def test_half_precision_logits_are_taken_and_nothing_is_written_into_them() -> None:
    logits = random_logits(4, 9).bfloat16()
    before = logits.clone()
    numbers = draws(0.1, 0.4, 0.6, 0.9)
    tokens, logprobs = sample(logits, numbers, Sampling(top_p=0.9, top_k=5, min_p=0.1, temperature=0.9))
    assert torch.equal(logits, before)
    assert logprobs.dtype == torch.float32 and tokens.dtype == torch.int64
    same_tokens, _ = sample(logits.float(), numbers, Sampling(top_p=0.9, top_k=5, min_p=0.1, temperature=0.9))
    assert torch.equal(tokens, same_tokens)
