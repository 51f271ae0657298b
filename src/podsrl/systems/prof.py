"""PROF (arXiv 2509.03403): of right rollouts those whose steps are right are kept, of wrong ones those whose are not.

Of n rollouts m are kept, right and wrong ones as evenly as there are of both, which is what max-variance keeps of
rewards of 0 and 1. Within each kind a score of the process decides: of the right rollouts those with the largest mean
score of their steps are kept, since a lucky answer behind a wrong step teaches the step; of the wrong ones those with
the smallest (`wrong = "worst"`, the paper's BOTH) or any (`"any"`, its POS).

Here a function of the task scores a whole answer, where the paper has a model that scores steps; it may call one. The
paper also punishes answers of one step and overlong ones, which is left to the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

from podsrl.lib.user_function import calling, import_function
from podsrl.types import Group, Rollout, Task

Score = Callable[[Task, str], float]


class Prof:
    """Prefers consistent rollouts among equal rewards; it learns nothing.

    Args:
        score: "module:function" of a task and an answer: how right the steps are, the larger the better.
        wrong: which wrong rollouts stay: "worst", those whose steps are least right, or "any".
    """

    def __init__(self, *, score: str, wrong: Literal["worst", "any"] = "worst") -> None:
        self._where, self._wrong = f"options.prof.score = {score!r}", wrong
        self._score = cast(Score, import_function(score, where=self._where, wanted="a function f(task, answer)"))

    def prefer(self, groups: Sequence[Group]) -> list[list[float]]:
        """The score of each right rollout, and of a wrong one its negative, or 0."""
        return [[self._preference(group.task, rollout) for rollout in group.rollouts] for group in groups]

    def _preference(self, task: Task, rollout: Rollout) -> float:
        if not rollout.is_valid or (not rollout.is_correct and self._wrong == "any"):
            return 0.0
        with calling(self._where, "f(task, answer)"):
            score = float(self._score(task, rollout.text))
        return score if rollout.is_correct else -score
