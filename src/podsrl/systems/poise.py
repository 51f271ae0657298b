"""POISE (arXiv 2605.07579): the policy's own states say what a rollout is worth, so two rollouts of a question suffice.

**Features** (`States`). While a rollout is written, these numbers φ are kept with it: the last hidden state behind the
prompt, the one at the newest of the token counts `at`, and of the next token's entropy at these the newest, the mean
and the largest.

**Baseline** (`Probe`). A ridge regression g of standardised features predicts a reward from φ. What a rollout is
compared with must not know what it did, or the gradient has a bias: so it is what the *others* of its group predict,

    A_i = r_i - mean of g(φ_j) over j ≠ i        with two rollouts: A_1 = r_1 - g(φ_2) and A_2 = r_2 - g(φ_1)

without a standard deviation. After the step g is fitted to pairs of φ_j and the mean reward of the others, of the last
`window` rollouts. Until it has been, the advantages stay as they are; "leave_one_out" has the same expectation.

Questions per step cost as much as rollouts, and rollouts of different questions teach more than those of one: two of
each of four times the questions cost what eight do.

The authors' code could not be read. What is ours: the model's last layer at single tokens, where the paper takes means
of the last ten tokens of the prompt and of the reasoning in a middle layer; groups of more than two; g is kept between
the lowest and the highest reward that it learned from, where the paper has 0 and 1; a window of rollouts, not of steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from torch import Tensor, tensor

from podsrl.errors import UsageError
from podsrl.lib.ridge import Ridge
from podsrl.lib.watch import Live, Note
from podsrl.types import Group, Notes, Selection

NOTE = "poise"
"""The features of a rollout, [2 D + 3]."""
Pairs = list[tuple[int, float]]
"""Places of a group's valid rollouts, and the mean reward of the other valid ones."""


class States:
    """Keeps features of its hidden states and entropies with every rollout.

    Args:
        at: token counts at which it looks, besides 0; below `rollouts.max_new_tokens`.
    """

    def __init__(self, *, at: tuple[Annotated[int, Field(ge=1)], ...] = ()) -> None:
        self.at = sorted({0, *at})

    def look(self, live: Live) -> list[Note]:
        """The features [2 D + 3] of each rollout, from those it had."""
        hidden, entropies = (each[live.row_of].float().cpu().numpy() for each in (live.hidden, live.entropies))
        found = np.concatenate([hidden, hidden, np.repeat(entropies[:, None], 3, axis=1)], axis=1)
        size = hidden.shape[1]
        for row, (notes, count) in enumerate(zip(live.notes, live.num_tokens, strict=True)):
            if NOTE in notes:
                noted = notes[NOTE]
                found[row, :size] = noted[:size]
                found[row, -2] = noted[-2] + (entropies[row] - noted[-2]) / bisect_right(self.at, count)
                found[row, -1] = max(noted[-1], entropies[row])
        return [Note(key, NOTE, row) for key, row in zip(live.keys, found, strict=True)]


class Probe:
    """Advantages against what the features of the other rollouts predict.

    Args:
        ridge: penalty of the regression's squared weights, against a sum of squared errors.
        window: rollouts that are remembered.
        warm_steps: first steps whose advantages stay as they are; at least 1, since nothing is fitted before.
    """

    def __init__(
        self,
        *,
        ridge: Annotated[float, Field(gt=0)] = 0.01,
        window: Annotated[int, Field(ge=2, le=2**20)] = 4096,
        warm_steps: Annotated[int, Field(ge=1)] = 1,
    ) -> None:
        self._ridge, self._warm_steps, self._num_steps = Ridge(ridge, window), warm_steps, 0

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages [m] of each group; those of fewer than two valid rollouts as they are."""
        if self._num_steps < self._warm_steps or not self._ridge.is_fitted:
            return advantages
        return [
            own if len(pairs := pairs_of(group)) < 2 else tensor(self._compared(group, selection, pairs))
            for group, selection, own in zip(groups, selections, advantages, strict=True)
        ]

    def _compared(self, group: Group, selection: Selection, pairs: Pairs) -> list[float]:
        """Reward minus what the others predict, of each kept rollout."""
        predicted = {place: self._predicted(group.rollouts[place].notes) for place, _ in pairs}
        return [
            group.rollouts[i].reward
            - fsum(value for place, value in predicted.items() if place != i) / (len(predicted) - 1)
            for i in selection.kept
        ]

    def _predicted(self, notes: Notes) -> float:
        """The mean of what was learned from, for a rollout without features."""
        if NOTE not in notes:
            return self._ridge.mean
        return float(self._ridge.predicted(notes[NOTE][None].astype(np.float64))[0])

    def learn(self, groups: Sequence[Group]) -> None:
        """Remember features and the rewards of the others, and fit the regression to what is remembered.

        Raises:
            UsageError: no rollout of the step has features.
        """
        self._num_steps += 1
        found = [(group.rollouts[place].notes, others) for group in groups for place, others in pairs_of(group)]
        pairs = [(notes[NOTE], others) for notes, others in found if NOTE in notes]
        if found and not pairs:
            raise UsageError(
                "podsrl.systems.poise:Probe reads features, and no rollout of the step has any; wanted those that "
                "States keeps: set systems = 'poise', which has both"
            )
        if pairs:
            self._ridge.learn(
                np.array([noted for noted, _ in pairs], np.float64), np.array([others for _, others in pairs])
            )

    def state(self) -> Mapping[str, Any]:
        """Steps, what is remembered, and the regression."""
        return {"num_steps": self._num_steps, **self._ridge.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._num_steps = state["num_steps"]
        self._ridge.restore(state)


def pairs_of(group: Group) -> Pairs:
    """Each valid rollout's place, and the mean reward of the others; none in a group of fewer than two."""
    rewards = {place: one.reward for place, one in enumerate(group.rollouts) if one.is_valid}
    if len(rewards) < 2:
        return []
    return [
        (place, fsum(reward for other, reward in rewards.items() if other != place) / (len(rewards) - 1))
        for place in rewards
    ]
