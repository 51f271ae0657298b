"""A part may refuse a training set before any weights load."""

from __future__ import annotations

import re
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("system", "option", "wrong"),
    [
        ("dots", "--options.difficulty.num_references=505", r"num_references = 505.* 504 "),
        ("dots", "--rollouts.num_prompts=505", r"num_prompts = 505.*'difficulty'.* 504"),
        ("dps", "--rollouts.num_prompts=505", r"num_prompts = 505.*'dynamics'.* 504"),
    ],
)
def test_a_set_that_is_too_small_for_a_part(pods: Any, system: str, option: str, wrong: str) -> None:
    code, _, err = pods("train", f"systems/{system}", option)
    assert code == 2 and re.search(wrong, " ".join(err.split()))
    assert "loading" not in err
