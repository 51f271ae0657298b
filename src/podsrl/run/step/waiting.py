"""A step that ends when enough groups are whole (`replay.unfinished = "keep"`): the others go on in the next one.

Long rollouts hold up a step while most slots idle. So a step begins more groups than it trains on. As soon as enough of
them are whole, all that still runs is put off with its tokens. The next step begins with these groups, the oldest
first, and asks new ones up to the same number. A rollout that goes on draws each further token as without the stop:
with the random number of the token's place, by the weights of then.

A group is for this step, or it waits: none is thrown away. Groups that were whole in surplus wait too, and come first.
A step waits for a group that began `most_age` steps before, so none is older. Short groups are whole first: those of
the first steps are shorter than their questions' own, and the long ones follow.

Which groups are whole first is up to the order in which the engine generates, so to `rollouts.num_slots` and
`rollouts.scheduler`; the tokens of a rollout are not, but for the weights that draw them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from podsrl.config.schema import ReplayConfig
from podsrl.control import View
from podsrl.run.step.closing import Whole
from podsrl.run.step.coming import Coming
from podsrl.run.step.judge import Judge
from podsrl.run.step.opens import with_completions
from podsrl.types import Completion, Open


class FirstGroups(Whole):
    """A step trains on the groups that are whole first, and on those that may wait no longer.

    Args:
        replay: the config's section.
        num_trained: groups that a step trains on.
    """

    def __init__(self, replay: ReplayConfig, num_trained: int) -> None:
        self._replay, self._num_trained, self.surplus = replay, num_trained, replay.surplus
        self._first: list[str] = []  # ids of the last round's whole groups, in the order in which they are trained on

    def opening(self, view: View, waiting: Sequence[Open]) -> View:
        return replace(view, num_prompts=max(0, self._replay.num_groups(self._num_trained) - len(waiting)))

    def read(self, view: View, opens: Sequence[Open], coming: Coming, judge: Judge) -> list[Open]:
        """As `Closing.read`; when enough groups are whole, what still runs is postponed."""
        missing = {each.group.id: len(each.to_come) for each in opens}
        due = {each.group.id for each in opens if view.step - each.group.step >= self._replay.most_age}
        whole = [name for name, count in missing.items() if not count]
        found: list[Completion] = []
        for completion in judge.prefetched(opens, _postponed(coming)):
            found.append(completion)
            if completion.is_postponed:
                continue
            missing[completion.request_id] -= 1
            if not missing[completion.request_id]:
                whole.append(completion.request_id)
            if coming.must_wait and len(whole) >= self._num_trained and due.issubset(whole):
                coming.end_all()
        self._first = sorted(whole, key=lambda name: name not in due)[: self._num_trained]
        return with_completions(opens, found)

    def closed(self, view: View, each: Open) -> Open:
        """As `Closing.closed`: the group was asked whole, in however many steps its rollouts came."""
        return replace(each, group=replace(each.group, num_first=None))

    def whole(self, opens: Sequence[Open]) -> list[Open]:
        return [each for each in opens if each.group.id in self._first]


def oldest_first(opens: Iterable[Open]) -> tuple[Open, ...]:
    """Groups in the order in which they began; of those of a step, the ones that are whole come first."""
    return tuple(sorted(opens, key=lambda each: (each.group.step, bool(each.to_come))))


def _postponed(completions: Iterable[Completion]) -> Iterator[Completion]:
    """What was stopped is postponed; what had drawn nothing begins anew."""
    for done in completions:
        if done.finish_reason != "aborted":
            yield done
        elif done.num_drawn:
            yield replace(done, finish_reason="postponed")
