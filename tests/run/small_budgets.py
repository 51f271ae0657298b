"""Parts of a budget of a user's, in a module of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from podsrl.control import Ask, View
from podsrl.types import Group


def always(*, count: int) -> Callable[[View], int]:
    """So many new groups in the first round."""
    return lambda view: count if view.round == 0 else 0


def after_a_probe(*, size: int = 2) -> Callable[[View, Sequence[Ask]], list[Ask]]:
    """A probe of every question, then a group of those whose probe had two different rewards."""

    def rollouts(view: View, asks: Sequence[Ask]) -> list[Ask]:
        if view.round == 0:
            return [Ask(index=ask.index, num_rollouts=size, is_trained=False) for ask in asks]
        if view.round == 1:
            mixed = [g for g in view.groups if len({r.reward for r in g.rollouts}) > 1]
            return [Ask(index=g.index, num_rollouts=view.num_rollouts) for g in mixed if g.index is not None]
        return []

    return rollouts


class LearnsOnly:
    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        return asks

    def learn(self, groups: Sequence[Group]) -> None: ...


def forgetful() -> LearnsOnly:
    return LearnsOnly()


def half_shown(*, before: str = "What is 1 + 1?\n1+1=2 Answer: 2.\n\n") -> Callable[[View, Sequence[Ask]], list[Ask]]:
    """Half of the rollouts of every other group, new or grown, with a text before the question."""

    def guide(view: View, asks: Sequence[Ask]) -> list[Ask]:
        found = []
        for place, ask in enumerate(asks):
            half = ask.num_rollouts // 2
            if (place + view.step) % 2 or not half or view.round > 1:
                found.append(ask)
                continue
            prompt = f"{before}{view.tasks[ask.index].prompt}"
            if ask.joins is None:  # a new group is one ask
                found.append(replace(ask, prompt=prompt, origin="shown"))
            else:
                found.append(replace(ask, num_rollouts=ask.num_rollouts - half))
                found.append(replace(ask, num_rollouts=half, prompt=prompt, origin="shown"))
        return found

    return guide


def in_two_rounds() -> Callable[[View, Sequence[Ask]], list[Ask]]:
    """Three quarters of the rollouts first, then the rest of every group."""

    def rollouts(view: View, asks: Sequence[Ask]) -> list[Ask]:
        first = 3 * view.num_rollouts // 4
        if view.round == 0:
            return [replace(ask, num_rollouts=first) for ask in asks]
        groups = view.groups if view.round == 1 else ()
        rest = view.num_rollouts - first
        return [Ask(index=g.index, num_rollouts=rest, joins=g.id) for g in groups if g.index is not None]

    return rollouts
