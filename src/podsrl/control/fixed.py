"""What a step does where no part decides: P questions of the stream, n rollouts each, in one round, all trained on."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.control.base import View
from podsrl.types import Ask


def enough(view: View) -> int:
    """All `rollouts.num_prompts` groups in the first round."""
    return view.num_prompts if view.round == 0 else 0


def questions(view: View, count: int) -> Sequence[int]:
    """The next questions of the run's stream."""
    return view.stream.draw(count)


def rollouts(view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
    """`rollouts.num_rollouts` of each question."""
    return asks


def guide(view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
    """Each question as it stands in the training set."""
    return asks


def keep(view: View) -> Sequence[str]:
    """Every group that is no probe."""
    return [group.id for group in view.groups if group.is_trained]
