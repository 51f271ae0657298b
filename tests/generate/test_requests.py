"""Requests and sampling options are checked when they are made, and each message names the option."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from loops import each
from podsrl.errors import UsageError
from podsrl.generate import Request, Sampling

NO_TOKENS = True, np.True_, 1.0, np.float32(1), "1", None


@each(
    ("option", "value", "named"),
    [
        *(("temperature", value, "wanted.*for greedy decoding set top_k = 1") for value in (0.0, -1.0, math.nan)),
        ("temperature", math.inf, "wanted"),
        *(("top_p", value, "wanted") for value in (0.0, 1.01, -0.5, math.nan)),
        ("top_k", -1, "wanted"),
        *(("min_p", value, "wanted") for value in (-0.1, 1.0, math.nan)),
        *(("max_new_tokens", value, "wanted") for value in (0, -5)),
        *(("stop_strings", value, "wanted no empty string") for value in (("",), ("a", ""))),
        ("stop_strings", "end", "wanted a tuple"),
    ],
)
def test_a_sampling_option_outside_its_range_is_named_with_its_value(option: str, value: Any, named: str) -> None:
    with pytest.raises(UsageError, match=f"{option} = {re.escape(repr(value))}: {named}"):
        Sampling(**{option: value})


@each(
    ("given", "named"),
    [
        ({"prompt_ids": ()}, "prompt_ids of request 'q' = no tokens: wanted at least one token"),
        ({"num_rollouts": 0}, "num_rollouts of request 'q' = 0: wanted at least 1"),
        ({"num_rollouts": -2}, "num_rollouts of request 'q' = -2: wanted at least 1"),
        ({"first_index": -1}, "first_index of request 'q' = -1: wanted 0 or more"),
        *(
            ({"prompt_ids": (5, token)}, rf"request 'q' = .*with a {type(token).__name__}\): wanted integers")
            for token in NO_TOKENS
        ),
    ],
)
def test_what_is_wrong_with_a_request_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Request("q", **({"prompt_ids": (3,)} | given))


@each("token", NO_TOKENS)
def test_stops_that_are_no_tokens_are_refused(token: Any) -> None:
    with pytest.raises(UsageError, match=rf"^stop_token_ids = .*with a {type(token).__name__}\): wanted integers"):
        Sampling(stop_token_ids=(5, token))


def test_stops_given_as_lists_are_kept_as_tuples_so_that_equal_samplings_are_one() -> None:
    ids, strings = [4, 5], ["a", "b"]
    sampling = Sampling(stop_token_ids=ids, stop_strings=strings)  # type: ignore[arg-type]  # as a caller may write it
    ids.append(6)
    strings.append("c")
    assert (sampling.stop_token_ids, sampling.stop_strings) == ((4, 5), ("a", "b"))
    assert {sampling: 1}[Sampling(stop_token_ids=(4, 5), stop_strings=("a", "b"))] == 1


def test_numpys_integers_are_tokens_too() -> None:
    given: Any = [5, *np.array([7, 9]), np.int32(3), np.uint8(4)]
    for ids in (Request("a", given).prompt_ids, Sampling(stop_token_ids=given).stop_token_ids or ()):
        assert ids == (5, 7, 9, 3, 4) and {type(token) for token in ids} == {int}
