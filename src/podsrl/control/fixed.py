"""The default budget: P questions of the stream with n rollouts each, in one round; all groups are trained on."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.control.base import Enough, Guide, Keep, Questions, Recall, Rollouts, View
from podsrl.types import Ask, Group


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


def nothing() -> Recall:
    """No group: of an earlier step, or that waits for a later one."""

    def groups(view: View) -> Sequence[Group]:
        return ()

    return groups
