"""The defaults: P questions of the stream with n rollouts each, in one round; all of their groups are trained on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from podsrl.control.base import Enough, Guide, Keep, Questions, Rollouts, View
from podsrl.types import Ask


def one_round() -> Enough:
    """All `rollouts.num_prompts` groups in the first round."""

    def enough(view: View) -> int:
        return view.num_prompts if view.round == 0 else 0

    return enough


def stream() -> Questions:
    """The next questions of the run's stream."""

    def questions(view: View, count: int) -> Sequence[int]:
        return view.stream.draw(count)

    return questions


def equal() -> Rollouts:
    """`rollouts.num_rollouts` of each question."""

    def rollouts(view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        return asks

    return rollouts


def none() -> Guide:
    """Each question as it stands in the training set."""

    def guide(view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        return asks

    return guide


def every() -> Keep:
    """Every group that is no probe."""

    def keep(view: View) -> Sequence[str]:
        return [group.id for group in view.groups if group.is_trained]

    return keep


class Nothing:
    """No group is closed, waits or comes from an earlier step, and no rollout is ended, forked or repaired."""

    at: Collection[int] = ()
    """`steer.prune` and `steer.branch` are shown no rollout."""

    def __call__(self, *asked: object) -> Sequence[Any]:
        """Nothing, whatever is asked."""
        return ()
