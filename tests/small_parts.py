"""Small systems for every moment, and a reward: what those that ship do not do, or not together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from podsrl.control import Ask, View
from podsrl.types import Group, Selection


def lucky(prompts: list[str], completions: list[str]) -> list[float]:
    """1 for a third of all texts: most groups of four are mixed, some are all wrong, few are all right."""
    return [float(sum(map(ord, text)) % 3 == 0) for text in completions]


class InTwoRounds:
    """Half of the groups in each of the first two rounds."""

    def enough(self, view: View) -> int:
        return (view.num_prompts + 1 - view.round) // 2 if view.round < 2 else 0


class Least:
    """Of twice as many questions those that were asked least often."""

    def __init__(self) -> None:
        self.asked = np.zeros(0, dtype=np.int64)

    def questions(self, view: View, count: int) -> list[int]:
        asked = dict(enumerate(self.asked.tolist()))
        return sorted(view.stream.draw(2 * count), key=lambda index: asked.get(index, 0))[:count]

    def learn(self, groups: Sequence[Group]) -> None:
        indices = [group.index for group in groups if group.index is not None]
        grown = np.zeros(max([len(self.asked), *(index + 1 for index in indices)]), dtype=np.int64)
        grown[: len(self.asked)] = self.asked
        np.add.at(grown, indices, 1)
        self.asked = grown

    def state(self) -> Mapping[str, Any]:
        return {"asked": self.asked}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.asked = state["asked"]


class Twice:
    """In a further round, more rollouts of some groups: as many as they have."""

    num_rounds = 1

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        if not 0 < view.round <= self.num_rounds:
            return list(asks)
        first = view.rng("more").integers(2)
        again = [(g, g.index) for g in view.groups if g.is_trained and g.index is not None][first::2]
        return [*asks, *(Ask(index=index, num_rollouts=len(g.rollouts), joins=g.id) for g, index in again)]


class Thrice(Twice):
    """In two further rounds."""

    num_rounds = 2


FAILS_AT: list[tuple[int, Any]] = []
"""Steps in which `Failing` fails, and the round, or "learns"."""


class Failing(Thrice):
    def __init__(self) -> None:
        self.seen = 0

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        if (view.step, view.round) in FAILS_AT:
            raise ZeroDivisionError
        return super().rollouts(view, asks)

    def learn(self, groups: Sequence[Group]) -> None:
        if (self.seen, "learns") in FAILS_AT:
            raise ZeroDivisionError
        self.seen += 1

    def state(self) -> Mapping[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"]


class Probed:
    """Two rollouts of every question as a probe; then a group for every question that is not in vain."""

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        probes = [replace(ask, num_rollouts=2, is_trained=False) for ask in asks]
        known = {group.index for group in view.groups if group.is_trained}
        seen = [g for g in view.groups if not g.is_trained and g.index not in known]
        good = [g for g in seen if any(r.is_correct for r in g.rollouts)]
        found = [Ask(index=g.index, num_rollouts=view.num_rollouts) for g in good if g.index is not None]
        return [*probes, *found]


class Growing:
    """One rollout more for each step that it saw, up to a number."""

    def __init__(self, *, most: int = 3) -> None:
        self.extra, self.rate, self.largest = 0, 0.0, most

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        return [replace(ask, num_rollouts=ask.num_rollouts + min(self.extra, self.largest)) for ask in asks]

    def shape(self, groups: Any, selections: Any, advantages: Sequence[Tensor]) -> list[Tensor]:
        return [advantage * (1 + self.rate) for advantage in advantages]

    def learn(self, groups: Sequence[Group]) -> None:
        right = [rollout.is_correct for group in groups for rollout in group.rollouts]
        self.extra += 1
        self.rate = 0.5 * self.rate + 0.5 * sum(right) / max(1, len(right))

    def state(self) -> Mapping[str, Any]:
        return {"extra": self.extra, "rate": self.rate}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.extra, self.rate = state["extra"], state["rate"]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        return num_prompts, num_rollouts + self.largest


class Hinted:
    """Of what joins a group, the second half is shown with a hint; of a new group, every other one is."""

    def guide(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        found: list[Ask] = []
        for place, ask in enumerate(asks):
            prompt = f"Hint: {view.tasks[ask.index].answer[-1:]}. {view.tasks[ask.index].prompt}"
            if ask.joins is None:
                found.append(replace(ask, prompt=prompt, origin="hint") if (view.step + place) % 2 else ask)
                continue
            half = ask.num_rollouts // 2
            found += [replace(ask, num_rollouts=ask.num_rollouts - half)]
            found += [replace(ask, num_rollouts=half, prompt=prompt, origin="hint")] if half else []
        return found


class Signal:
    """Trains on groups with two different rewards."""

    def keep(self, view: View) -> list[str]:
        return [g.id for g in view.groups if g.is_trained and len({r.reward for r in g.rollouts}) > 1]


class LaterLess:
    """One value per token: a tenth less at each."""

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> list[Tensor]:
        found = []
        for group, selection, advantage in zip(groups, selections, advantages, strict=True):
            lengths = [len(group.rollouts[i].token_ids) for i in selection.kept]
            wide = advantage if advantage.ndim == 2 else advantage[:, None].expand(-1, max(lengths, default=0))
            found.append(wide * 0.9 ** torch.arange(wide.shape[1]))
        return found
