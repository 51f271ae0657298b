"""Difficulty-targeted selection of DOTS (arXiv 2506.05316): ask the questions that are half solved.

Every `every` steps a first round probes: it asks `num_references` questions, drawn at random, for `num_rollouts`
rollouts each, which no batch holds. A predictor (`podsrl.control.parts.predictor`) then gives p for every candidate
from what the references' rollouts say, and the step asks its questions by

    P(i) ∝ exp(-|p_i - target| / temperature)    without replacement

The steps until the next probe use the same references. Where all references are answered alike, and before the first
probe, all predictions are equal, so the choice is uniform.

What is ours: the predictor, which has no language model; candidates are the next `num_candidates` questions of the
data stream, or all where there are no more; a later round prefers questions that the step has not asked. The published
replay of groups is another part's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from podsrl.control.base import View
from podsrl.control.parts.candidates import check_train, count_right, draw_candidates, first
from podsrl.control.parts.features import features_of
from podsrl.control.parts.predictor import Predictor, empty
from podsrl.errors import UsageError
from podsrl.types import Ask, Group

Count = Annotated[int, Field(ge=1)]


class Difficulty:
    """Fills `budget.questions` and `budget.rollouts`.

    Args:
        num_references: questions of a probe.
        num_rollouts: of each reference.
        every: steps from one probe to the next.
        target: success to aim at, 0 to 1.
        temperature: of the choice; near 0 it takes the questions nearest to the target.
        num_candidates: questions that are predicted per step, if the training set has more.
    """

    needs = ("budget.questions", "budget.rollouts")

    def __init__(
        self, num_references: int, num_rollouts: int, every: int, target: float, temperature: float, num_candidates: int
    ) -> None:
        self._num_references, self._num_rollouts, self._every = num_references, num_rollouts, every
        self._target, self._temperature, self._num_candidates = target, temperature, num_candidates
        self._predictor = empty()

    def check_train(self, num_prompts: int, num_train: int) -> None:
        """UsageError: the training set is smaller than a step or a probe."""
        check_train(num_prompts, num_train, "difficulty")
        if self._num_references > num_train:
            raise UsageError(
                f"options.difficulty.num_references = {self._num_references}; the training set has {num_train} "
                "questions: lower it"
            )

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group."""
        return max(num_prompts, self._num_references), max(num_rollouts, self._num_rollouts)

    def questions(self, view: View, count: int) -> Sequence[int]:
        """Candidates drawn by how near their predicted success is to the target."""
        if self._probes(view):
            return [0] * count  # `rollouts` asks the references in their place
        candidates = draw_candidates(view, count, max(count, self._num_candidates))
        predicted = self._now(view)(features_of([view.tasks[index] for index in candidates]))
        scores = -np.abs(predicted - self._target) / self._temperature
        # The largest sums with Gumbel noise are a draw without replacement (Vieira 2014).
        scores += view.rng("difficulty").gumbel(size=len(scores))
        return first(view, candidates, scores, count)

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The references in a probing round, then the chosen questions."""
        if self._probes(view):
            drawn = view.rng("difficulty").choice(view.num_train, min(self._num_references, view.num_train), False)
            return [Ask(index=int(i), num_rollouts=self._num_rollouts, is_trained=False) for i in np.sort(drawn)]
        if view.round == 1 and not asks and not any(group.is_trained for group in view.groups):
            chosen = self.questions(view, view.num_prompts)  # `enough` counted the probing round as the step's first
            return [Ask(index=index, num_rollouts=view.num_rollouts) for index in chosen]
        return asks

    def learn(self, groups: Sequence[Group]) -> None:
        """Keep the step's references."""
        self._predictor = _after(self._predictor, groups)

    def state(self) -> dict[str, Any]:
        """The predictor's arrays."""
        return {each.name: getattr(self._predictor, each.name) for each in fields(Predictor)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._predictor = Predictor(**{each.name: np.array(state[each.name]) for each in fields(Predictor)})

    def _probes(self, view: View) -> bool:
        return view.round == 0 and view.step % self._every == 0

    def _now(self, view: View) -> Predictor:
        return _after(self._predictor, view.groups)


def _after(predictor: Predictor, groups: Sequence[Group]) -> Predictor:
    """The predictor that knows the probes among these groups too."""
    probes = [group for group in groups if not group.is_trained]
    indices, right, valid = count_right(probes)
    if not len(indices):
        return predictor
    tasks = {group.index: group.task for group in probes}
    return predictor.after(features_of([tasks[index] for index in indices.tolist()]), right, valid)


def difficulty(
    *,
    num_references: Count = 256,
    num_rollouts: Count = 8,
    every: Count = 2,
    target: Annotated[float, Field(ge=0, le=1)] = 0.5,
    temperature: Annotated[float, Field(gt=0)] = 1e-3,
    num_candidates: Count = 512,
) -> Difficulty:
    """Questions whose predicted success is near a target, for `budget.questions` and `budget.rollouts` together."""
    return Difficulty(num_references, num_rollouts, every, target, temperature, num_candidates)
