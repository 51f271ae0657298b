"""Which of equal rewards a rule keeps: the order in which a group's rollouts stand before it.

Max-variance, and the rules that are built on it, keep the first of equal rewards, at both ends. What they keep of each
reward does not depend on the order, so every proof stands; which rollouts these are does. With rewards of 0 and 1 the
rule says how many right and wrong ones, and the order which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from podsrl.errors import UsageError, short
from podsrl.lib.parts import Call
from podsrl.types import Group, Rollout

KEEP_FIRST = ("max_variance", "max_signal", "drop_surplus")
"""The rules that keep the first of equal rewards."""


def mean_logprob(rollout: Rollout) -> float:
    """Of its drawn tokens; 0 without any."""
    drawn = rollout.drawn_logprobs
    return math.fsum(drawn) / len(drawn) if drawn else 0.0


TIES: Mapping[str, Callable[[Rollout], float] | None] = MappingProxyType(
    {
        "position": None,
        "short": lambda rollout: -rollout.num_drawn,
        "likely": mean_logprob,
        "unlikely": lambda rollout: -mean_logprob(rollout),
    }
)
"""Value of `select.ties` -> what a rollout has the more of the earlier it stands; None: they stand as they are."""


def preferred(groups: Sequence[Group], ties: str, part: Call | None) -> list[list[float]] | None:
    """For each rollout of each group a number: of equal rewards those with larger numbers come first.

    Args:
        groups: of the step.
        ties: a key of `TIES`.
        part: a part's `prefer`, which decides in its place.

    Returns:
        None: they stand as they are.

    Raises:
        UsageError: the part raised, or gave something else than a number for each rollout.
    """
    if part is None:
        key = TIES[ties]
        return None if key is None else [[key(rollout) for rollout in group.rollouts] for group in groups]
    found: Any = part(tuple(groups))
    try:
        rows = [[float(number) for number in row] for row in found]
    except (TypeError, ValueError):
        rows = []
    sizes = [len(group.rollouts) for group in groups]
    if [len(row) for row in rows] != sizes or any(math.isnan(number) for row in rows for number in row):
        raise UsageError(f"{part.option} returned {short(found)}; wanted a number for each rollout of each group")
    return rows
