"""What the parts that choose questions share: the questions to choose from, and how often each was answered right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Group


def check_train(num_prompts: int, num_train: int, system: str) -> None:
    """UsageError: a step has more questions than the training set, of which a system chooses the best."""
    if num_prompts > num_train:
        raise UsageError(
            f"rollouts.num_prompts = {num_prompts}; systems = {system!r} chooses different questions, and the "
            f"training set has {num_train}: lower it, or use more questions"
        )


def draw_candidates(view: View, count: int, most: int) -> NDArray[np.int64]:
    """Different questions of the data stream, ascending: at least `count`, about `most`, all if the set is no larger.

    What is drawn counts as used: an epoch is over when every question has been a candidate once.

    Args:
        view: its stream moves on.
        count: where it is more than the training set has, all questions are given.
        most: at least `count`.
    """
    drawn = view.stream.draw(min(most, view.num_train))
    if len(drawn) == view.num_train:
        return np.arange(view.num_train)
    while len(found := np.unique(drawn)) < count:  # a draw across the end of an epoch may hold a question twice
        drawn += view.stream.draw(count - len(found))
    return found


def first(view: View, candidates: NDArray[np.int64], scores: NDArray[np.float64], count: int) -> list[int]:
    """The candidates with the largest scores, equal ones in their order; those that the step has not asked come first,
    if no group of theirs waits.

    Where there are fewer than `count`, they are repeated.
    """
    known = (*view.groups, *view.waiting)
    asked = [group.index for group in known if group.is_trained and group.index is not None]
    order = np.lexsort((-scores, np.isin(candidates, asked)))
    best: list[int] = np.resize(candidates[order], count).tolist()
    return best


def count_right(groups: Sequence[Group]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """How often the questions of some groups were answered right, when they were shown with their own prompts.

    Returns:
        indices [K] of the questions, ascending; right rollouts [K]; valid rollouts [K], at least 1.

    Example:
        >>> [array.tolist() for array in count_right([])]
        [[], [], []]
    """
    counts: dict[int, list[int]] = {}
    for group in groups:
        if group.index is not None and (own := group.outcomes):
            right_and_all = counts.setdefault(group.index, [0, 0])
            right_and_all[0] += sum(own)
            right_and_all[1] += len(own)
    table = np.array([(index, *counts[index]) for index in sorted(counts)], dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]
