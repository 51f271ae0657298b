"""The default budget: P questions of the stream with n rollouts each, in one round."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.control.base import Enough, Questions, Rollouts, View
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
