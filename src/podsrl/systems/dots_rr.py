"""DOTS-RR's rollout replay (arXiv 2506.05316, sections 4 and 5, and its public code): groups are trained on again.

A buffer holds the newest groups in which some answers are right and some wrong, one per question. Each step draws from
the buffer as it was before the step, at random, and takes nothing out. So a step with fewer questions of its own trains
on as many groups, and the rollouts of the replayed ones cost nothing.

The tokens of a replayed group were drawn by older weights. The paper bounds π/μ around the weights at the start of the
update: `correct.proximal = "step_start"` with `correct.weight = "full"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Group

Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Fifo:
    """Gives groups of earlier steps.

    Args:
        num: groups given to each step, as far as there are so many.
        size: groups kept; the oldest leave first.
    """

    def __init__(self, *, num: Count = 8, size: Count = 256) -> None:
        if num > size:
            raise UsageError(
                f"options.dots_rr.num = {num} is more than options.dots_rr.size = {size}, the groups that are kept: "
                "lower num"
            )
        self._num, self.most_groups = num, size
        self._kept: tuple[Group, ...] = ()

    def recall(self, view: View) -> Sequence[Group]:
        """Some of the kept ones, in the order in which they came."""
        count = min(self._num, len(self._kept))
        drawn = view.rng("fifo").choice(len(self._kept), count, replace=False) if count else ()
        return [self._kept[place] for place in sorted(drawn)]

    def learn(self, groups: Sequence[Group]) -> None:
        """Keep the mixed ones of those that the step trained on."""
        latest = {group.index: group for group in self._kept}
        for group in groups:
            if group.is_trained and group.is_mixed:
                latest.pop(group.index, None)  # so that it comes last
                latest[group.index] = group
        self._kept = tuple(latest.values())[-self.most_groups :]

    def state(self) -> Mapping[str, Any]:
        """All that it keeps."""
        return {"kept": self._kept}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._kept = tuple(state["kept"])
