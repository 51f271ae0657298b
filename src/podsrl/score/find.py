"""Finds reward functions by name: a known one, or the user's own as "module:function"."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import cast

import podsrl.score  # for its table; read at call time only, because that package imports this file
from podsrl.errors import UsageError, nearest
from podsrl.lib.user_function import import_function
from podsrl.score.base import Reward

IN_WORKERS = frozenset({"math_correct", "any_correct", "boxed_correct"})
"""Known rewards that load sympy and may take long; the others take microseconds."""
HIDDEN_FROM_WORKERS = "a worker process cannot import its module; put it into a file of its own"


def find_reward(name: str, *, option: str) -> Reward:
    """Find a reward function.

    Args:
        name: a key of `podsrl.score.REWARDS`, or "module:function"; the module must be importable.
        option: config key the name comes from, for messages.

    Raises:
        UsageError: the name is unknown, or the import fails.

    Example:
        >>> from podsrl.types import Task
        >>> find_reward("format", option="task.rewards")(Task(id="a", prompt="1+2=", answer="3"), "Answer: 3.")
        1.0
    """
    if name in podsrl.score.REWARDS:
        return podsrl.score.REWARDS[name]
    if ":" not in name:
        hint = nearest(name, podsrl.score.REWARDS)
        raise UsageError(f"{option}: unknown reward '{name}'.{hint} Your own: 'module:function'")
    with redirect_stdout(sys.stderr):  # what its module prints is no part of a command's result
        return cast(Reward, import_function(name, where=f"{option}: '{name}'"))


def is_quick(name: str) -> bool:
    """Say whether a row-form function may run in the main process without a time limit."""
    return name in podsrl.score.REWARDS and name not in IN_WORKERS


def is_found_by_workers(name: str) -> bool:
    """Say whether another process can import the function: not what a notebook or the running script itself defines."""
    if name in podsrl.score.REWARDS:
        return True
    module = name.partition(":")[0]
    spec = getattr(sys.modules[module], "__spec__", None)
    return spec is not None and spec.name == module
