"""Small systems that ask and shape, in a module of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from podsrl.control import Ask, View
from podsrl.types import Group, Selection


class Always:
    """So many new groups in the first round."""

    def __init__(self, *, count: int) -> None:
        self.count = count

    def enough(self, view: View) -> int:
        return self.count if view.round == 0 else 0


class AfterAProbe:
    """A probe of every question, then a group of those whose probe had two different rewards."""

    def __init__(self, *, size: int = 2) -> None:
        self.size = size

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        if view.round == 0:
            return [Ask(index=ask.index, num_rollouts=self.size, is_trained=False) for ask in asks]
        if view.round == 1:
            mixed = [g for g in view.groups if len({r.reward for r in g.rollouts}) > 1]
            return [Ask(index=g.index, num_rollouts=view.num_rollouts) for g in mixed if g.index is not None]
        return []


class Forgetful:
    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        return asks

    def learn(self, groups: Sequence[Group]) -> None: ...


class HalfShown:
    """Half of the rollouts of every other group, new or grown, with a text before the question."""

    def __init__(self, *, before: str = "What is 1 + 1?\n1+1=2 Answer: 2.\n\n") -> None:
        self.before = before

    def guide(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        found = []
        for place, ask in enumerate(asks):
            half = ask.num_rollouts // 2
            if (place + view.step) % 2 or not half or view.round > 1:
                found.append(ask)
                continue
            prompt = f"{self.before}{view.tasks[ask.index].prompt}"
            if ask.joins is None:  # a new group is one ask
                found.append(replace(ask, prompt=prompt, origin="shown"))
            else:
                found.append(replace(ask, num_rollouts=ask.num_rollouts - half))
                found.append(replace(ask, num_rollouts=half, prompt=prompt, origin="shown"))
        return found


class InTwoRounds:
    """Three quarters of the rollouts first, then the rest of every group."""

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        first = 3 * view.num_rollouts // 4
        if view.round == 0:
            return [replace(ask, num_rollouts=first) for ask in asks]
        groups = view.groups if view.round == 1 else ()
        rest = view.num_rollouts - first
        return [Ask(index=g.index, num_rollouts=rest, joins=g.id) for g in groups if g.index is not None]


class InThreeWays:
    """Half of a new group's rollouts plainly, a quarter that begin with a text, a quarter with another prompt too."""

    def __init__(self, *, text: str = "1+1=2 Answer: 2.", share: float = 0.5) -> None:
        self._text, self._share = text, share

    def guide(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        found = []
        for ask in asks:
            half, quarter = ask.num_rollouts // 2, ask.num_rollouts // 4
            begun = replace(
                ask, num_rollouts=quarter, joins="", start=self._text, start_share=self._share, origin="begun"
            )
            prompt = f"What is 1 + 1?\n1+1=2 Answer: 2.\n\n{view.tasks[ask.index].prompt}"
            found += [replace(ask, num_rollouts=half), begun, replace(begun, prompt=prompt, origin="both")]
        return found


class Halves:
    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> list[Tensor]:
        return [0.5 * each for each in advantages]


class TooMany:
    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> list[Tensor]:
        return [torch.zeros(len(each) + 1) for each in advantages]


class PerToken:
    """The same advantage for each token of a row."""

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> list[Tensor]:
        return [
            values[:, None] * torch.ones(max((len(group.rollouts[i].token_ids) for i in chosen.kept), default=0))
            for group, chosen, values in zip(groups, selections, advantages, strict=True)
        ]


class ByLength:
    """8 rollouts of questions with short prompts, 128 of the others."""

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        short = len("What is 1 + 1?\n")
        return [replace(ask, num_rollouts=8 if len(view.tasks[ask.index].prompt) <= short else 128) for ask in asks]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        return num_prompts, 128


class OneOfEach:
    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        return [replace(ask, num_rollouts=1) for ask in asks] if view.step == 1 else asks


class OutOfRange:
    def questions(self, view: View, count: int) -> list[int]:
        return [view.num_train] * count if view.step == 1 else view.stream.draw(count)


class Endless:
    """From the second step on there are always two rollouts more."""

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        if view.step == 0 or asks:
            return asks
        group = view.groups[0]
        return [Ask(index=group.index or 0, num_rollouts=2, joins=group.id)]
