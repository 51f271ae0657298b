"""The reward functions that podsrl knows by name, and the way from a name to a function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from itertools import chain

from podsrl.lib.resolve import Table, resolve
from podsrl.lib.user_function import GIVEN
from podsrl.score.base import WANTED, Reward
from podsrl.score.rewards.stated import ANSWER_MARK
from podsrl.score.rewards.tags import TAGS

REWARDS: Table[Reward] = Table(
    {
        "correct": "podsrl.score.rewards.stated:correct",
        "format": "podsrl.score.rewards.stated:format",
        "environment": "podsrl.score.rewards.earned:environment",
        "math_correct": "podsrl.score.rewards.answers:math_correct",
        "answer_format": "podsrl.score.rewards.tags:answer_format",
        "any_correct": "podsrl.score.rewards.paper:any_correct",
        "think_format": "podsrl.score.rewards.paper:think_format",
        "tag_count": "podsrl.score.rewards.paper:tag_count",
        "boxed_correct": "podsrl.score.rewards.paper:boxed_correct",
        "strict_format": "podsrl.score.rewards.paper:strict_format",
        "tag_share": "podsrl.score.rewards.paper:tag_share",
        "code_tests": "podsrl.score.rewards.code:code_tests",
        "code_share": "podsrl.score.rewards.code:code_share",
        "remote_code_tests": "podsrl.score.rewards.code:remote_code_tests",
        "remote_code_share": "podsrl.score.rewards.code:remote_code_share",
        "weaker_code_tests": "podsrl.score.rewards.code:weaker_code_tests",
        "weaker_code_share": "podsrl.score.rewards.code:weaker_code_share",
    }
)
"""Name of a reward, as in `task.rewards` -> the function."""

BOUNDS = (0.0, 1.0)
"""The lowest and the highest value of every function of `REWARDS`."""

ALGEBRA = frozenset({"math_correct", "any_correct", "boxed_correct"})
"""Rewards of the table that load sympy."""

REMOTE = frozenset({"remote_code_tests", "remote_code_share"})
"""Rewards of the table that ask a service: where it gives no value, the completion is not wrong."""

CODE = frozenset({"code_tests", "code_share", "weaker_code_tests", "weaker_code_share"}) | REMOTE
"""Rewards of the table that run programs, on tests that stand in a task's columns; the others read no columns."""

SLOW = ALGEBRA | CODE
"""Rewards of the table that may take long, so that worker processes call them; the others take microseconds."""

EXTRACTORS: Table[Callable[[str], str | None]] = Table(
    {"correct": "podsrl.score.rewards.stated:stated_answer"}
    | dict.fromkeys(ALGEBRA, "podsrl.score.rewards.answers:voted_answer")
)
"""Name of a reward that judges correctness -> the function that finds a text's final answer, for majority votes."""

MARKS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("answer_format", "think_format", "tag_count", "strict_format", "tag_share"), TAGS),
    **dict.fromkeys(("correct", "format"), (ANSWER_MARK,)),
}
"""Rewards of the table that want certain marks in a text, which no model writes unasked -> these marks."""


def find_reward(name: str, *, option: str) -> Reward:
    """Find a function by a key of `REWARDS` or "module:function"; `option` is the key it comes from, for messages.

    UsageError: the name is unknown, the import fails, or what it names cannot be called.
    """
    with redirect_stdout(sys.stderr):  # what a user's module prints is no part of a command's result
        return resolve(name, REWARDS, option=option, kind="reward", wanted=WANTED)


def modules_of(names: Iterable[str]) -> tuple[str, ...]:
    """What functions import when they are called: the names in their attribute `worker_modules`, if they have it."""
    found = (getattr(find_reward(name, option="task.rewards"), "worker_modules", ()) for name in names)
    return tuple(sorted(set(chain.from_iterable(found))))


def is_importable_by_workers(name: str) -> bool:
    """Whether another process can import the function: not what a notebook or the running script itself defines."""
    if name in REWARDS or name in GIVEN:
        return name in REWARDS
    module = name.partition(":")[0]
    spec = getattr(sys.modules[module], "__spec__", None)
    return spec is not None and spec.name == module
