"""What TRL's reward functions return, checked as podsrl's own scorer checks it: TRL takes a dict's keys for rewards."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn

from podsrl.errors import RewardError
from podsrl.lib.user_function import is_asynchronous
from podsrl.score.base import Fault, read_value
from podsrl.score.forms import checked_items, items_of


def checked(name: str, function: Any) -> Any:
    """The same reward function, or a reward model as it is; TRL awaits an asynchronous one.

    RewardError, when it is called: it returns anything but a list of numbers, one for each completion. None, or NaN, is
    TRL's "no reward".

    Example:
        >>> checked("mine", lambda completions: [True, None])(completions=["a", "b"])
        [1.0, None]
    """
    if isinstance(function, nn.Module):
        return function

    async def awaited(**given: Any) -> list[float | None]:
        return _rewards(name, await function(**given), len(given["completions"]))

    def called(**given: Any) -> list[float | None]:
        return _rewards(name, function(**given), len(given["completions"]))

    wrapper: Callable[..., Any] = awaited if is_asynchronous(function) else called
    return wraps(function)(wrapper)


def _rewards(name: str, returned: Any, num_rows: int) -> list[float | None]:
    return [_reward(name, value) for value in checked_items(name, items_of(returned), num_rows)]


def _reward(name: str, value: Any) -> float | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return value
    found = read_value(name, value)
    if isinstance(found, Fault):
        raise RewardError(f"{found.reason}; wanted a number, or None for no reward")
    return found
