"""A part of one's own that trains on groups a fixed number of steps late, and on nothing else.

It fills two slots: `replay.groups` gives the groups that were generated `steps` steps ago, and `budget.keep` leaves the
step's own out of the training. The first `steps` steps update nothing. With one optimizer step per step the tokens are
`steps` weight updates old from step 2 · `steps` on; before that they are as old as there were updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from podsrl.control.base import View
from podsrl.types import Group

Steps = Annotated[int, Field(ge=1, le=1000)]


class Lagged:
    """Groups wait in a queue, those of each step together.

    Args:
        steps: how many steps later they are trained on.
    """

    def __init__(self, *, steps: Steps = 8) -> None:
        self._steps = steps
        self._waiting: tuple[tuple[Group, ...], ...] = ()
        """Of the last steps, the oldest first."""

    def keep(self, view: View) -> Sequence[str]:
        """None of the step's own."""
        return ()

    def groups(self, view: View) -> Sequence[Group]:
        """Those of the step that is `steps` steps back; in the first steps there is none."""
        return self._waiting[0] if len(self._waiting) == self._steps else ()

    def learn(self, groups: Sequence[Group]) -> None:
        """Let those of the step wait, in place of those that have been trained on."""
        own = tuple(group for group in groups if group.is_trained)
        self._waiting = (*self._waiting, own)[-self._steps :]

    def state(self) -> Mapping[str, Any]:
        """All that wait, and how many of them each step has."""
        return {
            "groups": tuple(group for own in self._waiting for group in own),
            "sizes": [len(own) for own in self._waiting],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        rest = iter(state["groups"])
        self._waiting = tuple(tuple(next(rest) for _ in range(size)) for size in state["sizes"])
