"""GiGPO, group-in-group policy optimisation (Feng et al. 2025, arXiv 2505.10978): an advantage for each turn.

A rollout of K turns has the reward R. Its turn t, from 0, begins in a state and has the return γ^(K-1-t) R; where the
environment gives rewards for turns, it has the sum of γ^(s-t) r_s over the turns s from t on, and of R what they leave
stands at the last turn. Turns of a group's rollouts that begin in the same state are compared with each other; the
advantage of a turn's tokens is

    A + weight · (return − mean of the returns in that state)        0 in place of the bracket where the turn is alone

with A that of `loss.advantage`, the paper's episode advantage. With `std` the bracket is divided by the returns'
standard deviation (ddof 1) + 1e-6. All rollouts of a group begin in one state, so with one turn each this adds the
centred reward.

The paper's state is what the environment shows. Here that is what the model read before its turn ("reply"), or all
tokens of the rollout so far ("tokens"): the whole state of a conversation, which fewer turns share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from podsrl.score import EARNED
from podsrl.types import Group, Rollout, Selection

_EPS = 1e-6
"""Added to a standard deviation (the authors' code)."""
Tokens = tuple[int, ...]


class Anchors:
    """Adds to each kept rollout's advantage that of its turns.

    Args:
        weight: of a turn's advantage, at least 0.
        discount: γ per turn, 0 to 1.
        std: whether a turn's advantage is divided by the standard deviation of its state.
        state: "reply" or "tokens", as above.
    """

    def __init__(
        self,
        *,
        weight: Annotated[float, Field(ge=0, le=1e6)] = 1.0,
        discount: Annotated[float, Field(ge=0, le=1)] = 0.95,
        std: bool = False,
        state: Literal["reply", "tokens"] = "reply",
    ) -> None:
        self._weight, self._discount, self._std, self._state = weight, discount, std, state

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages [m] or [m, T] of each group as [m, T], with those of the turns."""
        return [self._with_turns(*each) for each in zip(groups, selections, advantages, strict=True)]

    def _with_turns(self, group: Group, selection: Selection, advantages: Tensor) -> Tensor:
        kept = [group.rollouts[i] for i in selection.kept]
        if not kept:
            return advantages
        longest = max(len(rollout.token_ids) for rollout in kept)
        found = (advantages.unsqueeze(1).expand(-1, longest) if advantages.ndim == 1 else advantages).clone()
        of_state: dict[tuple[Tokens | None, Tokens], list[tuple[int, int, int, float]]] = defaultdict(list)
        for row, rollout in enumerate(kept):
            gains = self._returns(rollout)
            for place, (turn, gain) in enumerate(zip(rollout.turns, gains, strict=True)):
                of_state[rollout.prompt_ids, self._read(rollout, place)].append((row, turn.start, turn.end, gain))
        for same in of_state.values():
            added = self._compared(np.array([gain for *_, gain in same]))
            for (row, start, end, _), value in zip(same, added.tolist(), strict=True):
                found[row, start:end] += self._weight * value
        return found

    def _returns(self, rollout: Rollout) -> list[float]:
        """Of each turn: what it and the later ones gain."""
        num_turns = len(rollout.turns)
        earned = [turn.reward for turn in rollout.turns] if EARNED in rollout.parts else []
        rest = rollout.reward - sum(earned)
        return [
            rest * self._discount ** (num_turns - 1 - place)
            + sum(gain * self._discount ** (later - place) for later, gain in enumerate(earned) if later >= place)
            for place in range(num_turns)
        ]

    def _read(self, rollout: Rollout, place: int) -> Tokens:
        """The state in which a turn begins."""
        ends = [0, *(turn.end for turn in rollout.turns)]
        start = rollout.turns[place].start
        return rollout.token_ids[0 if self._state == "tokens" else ends[place] : start]

    def _compared(self, gains: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] returns of one state -> [n] advantages."""
        if len(gains) < 2:
            return np.zeros_like(gains)
        centred: NDArray[np.float64] = gains - gains.mean()
        return centred / (gains.std(ddof=1) + _EPS) if self._std else centred
