"""A step that takes the groups that are whole first (`order.take = "first"`): the others go on in the next one.

Long rollouts hold up a step while most slots idle. So more groups are under way than a step trains on. As soon as
enough of them are whole, the step has its groups. The next one begins with those that are left, the oldest first, and
asks new ones up to the same number. A rollout that goes on draws each further token as without the stop: with the
random number of the token's place, by the weights of then.

A group is for this step, or it waits: none is thrown away. Groups that were whole in surplus wait too, and come first.
No group is trained on more than `order.most_age` steps after it began: a step waits for as many old ones as the steps
after it could not take in time. Short groups are whole first: those
of the first steps are shorter than their questions' own, and the long ones follow.

Which groups are whole first is up to the order in which the engine generates, so to `rollouts.num_slots` and
`rollouts.scheduler`; the tokens of a rollout are not, but for the weights that draw them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from podsrl.config.schema import OrderConfig
from podsrl.control import View
from podsrl.run.step.closing import Whole
from podsrl.run.step.judge import Judge
from podsrl.run.step.opens import with_completions
from podsrl.run.step.under_way import Work
from podsrl.types import Open, Rollout


class FirstGroups(Whole):
    """A step takes the groups that are whole first, and those that may wait no longer.

    Args:
        order: the config's section.
        num_trained: groups that a step trains on.
    """

    def __init__(self, order: OrderConfig, num_trained: int) -> None:
        self._num_under_way, self._num_trained = order.num_groups(num_trained), num_trained
        self._most_age = order.most_age or math.inf
        self._first: list[str] = []  # ids of the last round's whole groups, in the order in which they are trained on

    def opening(self, view: View, waiting: Sequence[Open]) -> View:
        return replace(view, num_prompts=max(0, self._num_under_way - len(waiting)))

    def read(self, view: View, opens: Sequence[Open], work: Work, judge: Judge) -> list[Open]:
        """As `Closing.read`, until enough groups are whole."""
        missing = {each.group.id: len(each.to_come) for each in opens}
        since = {each.group.id: each.group.step for each in opens}
        whole, found = [name for name, count in missing.items() if not count], list[Rollout]()
        first, coming = self._taken(view.step, since, whole), judge.prefetched(opens, work)
        while work.has_ended or first is None:
            if (completion := next(coming, None)) is None:
                break
            found.append(completion)
            missing[completion.group_id] -= 1
            if not missing[completion.group_id]:
                whole.append(completion.group_id)
                first = self._taken(view.step, since, whole)
        self._first = whole if first is None else first
        return with_completions(opens, found)

    def _taken(self, step: int, since: Mapping[str, int], whole: Sequence[str]) -> list[str] | None:
        """Ids of the groups that the step takes; None: too few are whole.

        Args:
            since: id -> step in which it began, of all groups.
            whole: ids of those that are whole, the first ones first.
        """
        taken = list[str]()
        for begun in sorted(set(since.values())):
            in_time = self._num_trained * (begun + self._most_age - step)  # that later steps can take
            num_old = sum(other <= begun for other in since.values())
            old = [name for name in whole if since[name] <= begun and name not in taken]
            if (lack := num_old - in_time - sum(since[name] <= begun for name in taken)) > len(old):
                return None
            if lack > 0:
                taken += old[: int(lack)]
        taken += [name for name in whole if name not in taken][: self._num_trained - len(taken)]
        return taken if len(taken) == self._num_trained else None

    def closed(self, view: View, each: Open) -> Open:
        """As `Closing.closed`: the group was asked whole, in however many steps its rollouts came."""
        return replace(each, group=replace(each.group, num_first=None))

    def whole(self, opens: Sequence[Open]) -> list[Open]:
        return [each for each in opens if each.group.id in self._first]


def oldest_first(opens: Iterable[Open]) -> tuple[Open, ...]:
    """Groups in the order in which they began; of those of a step, the ones that are whole come first."""
    return tuple(sorted(opens, key=lambda each: (each.group.step, bool(each.to_come))))
