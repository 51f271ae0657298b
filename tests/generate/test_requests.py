"""Requests and sampling options are checked when they are made, and each message names the option."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from loops import each
from podsrl.errors import UsageError
from podsrl.generate import Request, Sampling


@each(
    ("option", "value"),
    [
        ("temperature", 0.0),
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", -0.5),
        ("top_p", math.nan),
        ("top_k", -1),
        ("min_p", -0.1),
        ("min_p", 1.0),
        ("min_p", math.nan),
        ("max_new_tokens", 0),
        ("max_new_tokens", -5),
    ],
)
def test_a_sampling_option_outside_its_range_is_named_with_its_value(option: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{option} = {value}: wanted"):
        Sampling(**{option: value})


def test_the_ends_of_every_range_that_belong_to_it_are_accepted() -> None:
    sampling = Sampling(temperature=1e-3, top_p=1.0, top_k=0, min_p=0.0, max_new_tokens=1)
    assert (sampling.temperature, sampling.max_new_tokens, sampling.stop_token_ids) == (1e-3, 1, None)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="prompt_ids of request 'q' = no tokens: wanted at least one token"):
        Request("q", ())


@pytest.mark.parametrize("temperature", [0.0, -0.5, math.nan])
def test_no_temperature_is_told_how_to_decode_greedily(temperature: float) -> None:
    with pytest.raises(UsageError, match=r"temperature = .*at least 1e-06 \(for greedy decoding set top_k = 1\)"):
        Sampling(temperature=temperature)


@pytest.mark.parametrize("strings", [("",), ("a", "")])
def test_an_empty_stop_string_is_refused(strings: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"stop_strings = .*wanted no empty string"):
        Sampling(stop_strings=strings)


def test_a_single_stop_string_outside_a_tuple_is_refused_rather_than_taken_letter_by_letter() -> None:
    with pytest.raises(UsageError, match="stop_strings = 'end': wanted a tuple"):
        Sampling(stop_strings="end")  # type: ignore[arg-type]  # what a caller may well write


def test_stops_given_as_lists_are_kept_as_tuples_so_that_equal_samplings_are_one() -> None:
    ids, strings = [4, 5], ["a", "b"]
    sampling = Sampling(stop_token_ids=ids, stop_strings=strings)  # type: ignore[arg-type]  # as a caller may write it
    ids.append(6)
    strings.append("c")
    assert (sampling.stop_token_ids, sampling.stop_strings) == ((4, 5), ("a", "b"))
    assert {sampling: 1}[Sampling(stop_token_ids=(4, 5), stop_strings=("a", "b"))] == 1


@pytest.mark.parametrize("num_rollouts", [0, -2])
def test_fewer_than_one_rollout_is_refused(num_rollouts: int) -> None:
    with pytest.raises(UsageError, match=f"num_rollouts of request 'q' = {num_rollouts}: wanted at least 1"):
        Request("q", (3,), num_rollouts)


def test_a_negative_first_index_is_refused() -> None:
    with pytest.raises(UsageError, match=r"first_index of request 'q' = -1: wanted 0 or more"):
        Request("q", (3,), first_index=-1)


def test_a_prompt_given_as_a_list_is_kept_as_a_tuple() -> None:
    prompt = [4, 5]
    request = Request("q", prompt)  # type: ignore[arg-type]  # a list is what a caller may well have
    prompt.append(6)
    assert request.prompt_ids == (4, 5)


@pytest.mark.parametrize("token", [True, np.True_, 1.0, np.float32(1), "1", None])
def test_tokens_that_are_no_integers_are_refused(token: Any) -> None:
    with pytest.raises(UsageError, match=rf"request 'a' = .*with a {type(token).__name__}\): wanted integers"):
        Request("a", (5, token))


def test_numpys_integers_are_tokens_too() -> None:
    ids = Request("a", (5, *np.array([7, 9]), np.int32(3), np.uint8(4))).prompt_ids
    assert ids == (5, 7, 9, 3, 4) and {type(token) for token in ids} == {int}
