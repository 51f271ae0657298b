"""Rollouts that a part holds (`Hold`) until it can decide on their whole group: a turn of `turns.py`.

A decision waits for the round: all rollouts have come to where the part stopped them, or have ended. So neither slots
nor schedule change it, and those that go on have their memory to themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from podsrl.errors import UsageError, short
from podsrl.generate import Sampling
from podsrl.lib.parts import Call
from podsrl.lib.user_function import calling
from podsrl.run.step.turns import Silence
from podsrl.types import Rollout


@dataclass(frozen=True, slots=True)
class TogetherTalks:
    """A part with a method `together` talks with the rollouts of open groups."""

    together: Call

    def __call__(self, sampling: Sampling) -> TogetherTalk:
        return TogetherTalk(self.together)


class TogetherTalk(Silence):
    """Those that are held go on, or are pruned; as `podsrl.run.step.turns.Talk`."""

    def __init__(self, together: Call) -> None:
        self._together = together
        self._groups: dict[str, dict[int, Rollout]] = defaultdict(dict)
        self.num_waiting = 0

    def takes(self, done: Rollout) -> bool:
        """Whether it is held."""
        self._groups[done.group_id][done.index] = done
        self.num_waiting += done.is_open
        return done.is_open

    def answers(self, *, is_idle: bool) -> Iterator[Rollout]:
        """The held ones, when all have come so far: those that go on as they are, the others pruned."""
        if not is_idle:
            return
        self.num_waiting = 0
        for found in self._groups.values():
            group = [done for _, done in sorted(found.items())]
            waiting = [done for done in group if done.is_open]
            going_on = self._going_on(group) if waiting else set()
            for done in waiting:
                if done.index not in going_on:
                    found[done.index] = done = replace(done, status="pruned")
                yield done

    def _going_on(self, group: Sequence[Rollout]) -> set[int]:
        with calling(self._together.option):
            found = set(self._together.function(group))
        if unknown := found - {done.index for done in group if done.is_open}:
            raise UsageError(
                f"{self._together.option} returned {short(found)}, and {short(unknown)} of group "
                f"{group[0].group_id!r} is not held: wanted indices of those that go on"
            )
        return found
