"""Close groups that have enough, while their other rollouts are still being generated.

A group ends with the first index up to which its rollouts are enough: a function of its tokens and rewards. It is shown
with what has ended so far, in the order of the indices. What is enough stays enough when more rollouts come in between,
so what lies behind them is never needed. Neither slots, schedule nor clock changes a group: they decide how much of
what is not needed was generated before that was known.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from podsrl.control import Close, View
from podsrl.errors import UsageError, short
from podsrl.run.step.judge import Judge
from podsrl.run.step.opens import shortened, with_completions
from podsrl.run.step.under_way import Work
from podsrl.types import Group, Open, Rollout

NUM_WHOLE = 100
"""Groups in a row at the start that were not closed: enough to say so."""


class Closing(Protocol):
    """What becomes of groups while and after they are generated."""

    def opening(self, view: View, waiting: Sequence[Open]) -> View:
        """The view of round 0, where these groups of earlier steps go on."""
        ...

    def read(self, view: View, opens: Sequence[Open], work: Work, judge: Judge) -> list[Open]:
        """The open groups of a round with what came, to be judged; those of other processes as they are."""
        ...

    def closed(self, view: View, each: Open) -> Open:
        """A group whose rollouts of this round are all judged, without those that it does not need."""
        ...

    def whole(self, opens: Sequence[Open]) -> list[Open]:
        """Those that the step takes, of the groups of a round that were read; the others go on in the next step."""
        ...


class Whole:
    """Every group gets all rollouts that were asked, in the step that asked."""

    def opening(self, view: View, waiting: Sequence[Open]) -> View:
        return view

    def read(self, view: View, opens: Sequence[Open], work: Work, judge: Judge) -> list[Open]:
        return with_completions(opens, judge.prefetched(opens, work))

    def closed(self, view: View, each: Open) -> Open:
        return each

    def whole(self, opens: Sequence[Open]) -> list[Open]:
        return list(opens)


@dataclass(slots=True)
class _Growing:
    """A group that is being generated."""

    each: Open
    size: int
    """Rollouts that it needs, as far as is known."""
    came: list[Rollout] = field(default_factory=list)
    """Not judged yet."""
    judged: list[Rollout] = field(default_factory=list)
    """In the order of their indices."""

    def take(self, new: Sequence[Rollout]) -> None:
        """Some that came are judged."""
        done = {rollout.index for rollout in new}
        self.came = [completion for completion in self.came if completion.index not in done]
        self.judged = sorted((*self.judged, *new), key=lambda one: one.index)

    def shrinks(self, count: int) -> bool:
        """So many of the judged are enough; whether it needs fewer rollouts than was known."""
        before, self.size = self.size, self.judged[count - 1].index + 1
        self.judged = self.judged[:count]
        self.came = [completion for completion in self.came if completion.index < self.size]
        return self.size < before


class EarlyClose(Whole):
    """A group ends where it has enough.

    Args:
        close: a part's.
        option: for messages: "close of systems = 'certain'".
        first: no group ends with fewer rollouts.
    """

    def __init__(self, close: Close, option: str, first: int) -> None:
        self._close, self._option, self._first = close, option, first
        self._ended: set[str] = set()  # ids of groups that were cut while they were generated
        self._num_whole = 0.0  # groups before the first that was closed; NaN since then

    def read(self, view: View, opens: Sequence[Open], work: Work, judge: Judge) -> list[Open]:
        growing = {each.group.id: _Growing(each, each.size) for each in opens}
        found = []
        for completion in judge.prefetched(opens, work):
            found.append(completion)
            group = growing[completion.group_id]
            if completion.index < group.size:
                group.came.append(completion)
            if not work.has_ended:
                self._look(view, growing.values(), work, judge)
        self._ended = {name for name, group in growing.items() if group.size < group.each.size}
        opens = with_completions(opens, found)
        return [shortened(each, growing[each.group.id].size) for each in opens]

    def closed(self, view: View, each: Open) -> Open:
        rollouts = each.group.rollouts
        complete = next((i for i, one in enumerate(rollouts) if one.index != i), len(rollouts))
        size = self._fewest(view, each.group, rollouts[:complete])
        self._count(is_closed=size is not None)
        if size is None and complete == each.size and each.group.id in self._ended:
            raise UsageError(
                f"{self._option} had enough of group {each.group.id!r}, and not with all of its first {each.size} "
                "rollouts: what is enough has to stay enough when more rollouts come"
            )
        kept = shortened(each, each.size if size is None else size)
        return replace(kept, group=replace(kept.group, num_first=self._first))

    def _count(self, *, is_closed: bool) -> None:
        self._num_whole += math.nan if is_closed else 1
        if self._num_whole == NUM_WHOLE:
            warnings.warn(
                f"{self._option} has closed none of the first {NUM_WHOLE} groups: it saves nothing so far",
                stacklevel=2,
            )

    def _look(self, view: View, growing: Iterable[_Growing], work: Work, judge: Judge) -> None:
        """Judge what can be judged now, in one call, and end what is not needed then."""
        new = [each for each in growing if each.came and len(each.judged) + len(each.came) >= self._first]
        judged = judge.early([each.each.group.task for each in new], [each.came for each in new])
        for each, rollouts in zip(new, judged, strict=True):
            each.take(rollouts)
            count = self._fewest(view, each.each.group, each.judged) if rollouts else None
            if count is not None and each.shrinks(count):
                work.end(each.each.group.id, each.size)

    def _fewest(self, view: View, group: Group, rollouts: Sequence[Rollout]) -> int | None:
        """How many of the first of these are enough; None: all are not."""
        if len(rollouts) < self._first or not self._is_enough(view, group, rollouts):
            return None
        counts = range(self._first, len(rollouts))
        return self._first + bisect_left(counts, True, key=lambda count: self._is_enough(view, group, rollouts[:count]))

    def _is_enough(self, view: View, group: Group, rollouts: Sequence[Rollout]) -> bool:
        found = self._close(view, replace(group, rollouts=tuple(rollouts)))
        if not isinstance(found, (bool, np.bool_)):
            raise UsageError(f"{self._option} returned {short(found)}; wanted True or False")
        return bool(found)
