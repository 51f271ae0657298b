"""A window that prompt and completion exceed: what is advised is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.run.before.checks import check_window


@pytest.fixture
def model(make_model: Callable[..., Any]) -> Any:
    return make_model("qwen2", max_position_embeddings=100)


def test_what_fits_exactly_passes(model: Any) -> None:
    check_window(model, 60, 40)


BEYOND = ", which leaves out longer questions, or take a model with a longer window"


@pytest.mark.parametrize(
    ("longest_prompt", "max_new_tokens", "cure"),
    [
        (60, 41, "lower rollouts.max_new_tokens to 40 or less, or rollouts.max_prompt_tokens to 59 or less"),
        (100, 41, f"lower rollouts.max_prompt_tokens to 59 or less{BEYOND}"),
        (60, 120, "lower rollouts.max_new_tokens to 40 or less"),
        (120, 120, f"lower both{BEYOND}"),
    ],
)
def test_only_what_is_possible_is_advised(model: Any, longest_prompt: int, max_new_tokens: int, cure: str) -> None:
    with pytest.raises(UsageError, match=f"window of 100: {cure}$"):
        check_window(model, longest_prompt, max_new_tokens)
