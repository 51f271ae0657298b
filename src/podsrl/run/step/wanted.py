"""What a round asks for, group by group: how many rollouts to add, and to which prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from podsrl.errors import UsageError
from podsrl.generate import Generator, Request, Sampling, abilities_of
from podsrl.types import Group, Rollout

TOO_LONG = "guide_too_long"
"""`Rollout.origin` where the prompt that a guide made was too long, so that the task's own was asked."""


@dataclass(frozen=True, slots=True)
class More:
    """Rollouts that are asked in the same way."""

    count: int
    prompt_ids: tuple[int, ...] | None = None
    """In place of the group's."""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rollouts to add to a group."""

    group: Group
    """With what it has so far."""
    more: tuple[More, ...]
    """In the order of their indices."""

    @property
    def count(self) -> int:
        """Rollouts in all."""
        return sum(each.count for each in self.more)

    @property
    def first_index(self) -> int:
        """Index of the first rollout to add."""
        return 1 + max((rollout.completion.index for rollout in self.group.rollouts), default=-1)

    def requests(self, prompt_ids: tuple[int, ...], sampling: Sampling) -> Iterator[tuple[Request, More]]:
        """Each way of asking with its request.

        The group's id names the random numbers, so that later rollouts continue those of the earlier ones.

        Args:
            prompt_ids: of the group.
            sampling: how they are drawn.
        """
        name, first = self.group.id, self.first_index
        for number, each in enumerate(self.more):
            own = name if number == 0 else f"{name}+{first}"
            ids = each.prompt_ids or prompt_ids
            yield Request(own, ids, each.count, sampling, first_index=first, stream=name), each
            first += each.count


def merged(more: Sequence[More]) -> tuple[More, ...]:
    """Neighbours that are asked in the same way are one."""
    return tuple(
        More(sum(each.count for each in same), prompt_ids, origin)
        for (prompt_ids, origin), same in groupby(more, key=lambda each: (each.prompt_ids, each.origin))
    )


def by_group(wanted: Sequence[Wanted], rollouts: Iterable[Rollout]) -> dict[str, list[Rollout]]:
    """Group id -> its rollouts, in the order of their indices."""
    found: dict[str, list[Rollout]] = {each.group.id: [] for each in wanted}
    for rollout in sorted(rollouts, key=lambda rollout: rollout.completion.index):
        found[rollout.completion.request_id].append(rollout)
    return found


def check_join(wanted: Sequence[Wanted], generator: Generator) -> None:
    """Rollouts that join a group continue its random numbers, which a generator has to be able to do.

    Raises:
        UsageError: it is not.
    """
    for each in wanted:
        if (each.group.rollouts or len(each.more) > 1) and "join" not in abilities_of(generator):
            raise UsageError(
                f"the budget asks for more rollouts of group {each.group.id!r}, and the generator "
                f"{type(generator).__name__} lacks the ability 'join': use one that has, or a budget of one round"
            )
