"""DPS, dynamics-predictive sampling (arXiv 2603.10887): ask the questions that are likely to be partly solved.

Each question is a hidden Markov model of three states: all of a group's rollouts wrong, some right, all right. The part
holds, per question, the belief b [3] about its state and Dirichlet counts α [3, 3] of its transitions (columns:
previous state), whose mean is E[Φ] = α / column sums. The prediction for the next step is E[Φ] b. After a step

    asked:      b' = the state that was seen, one-hot;  ξ ∝ (b' bᵀ) ∘ E[Φ], with sum 1;  α ← λ α + (1 - λ) + ξ
    not asked:  b' = E[Φ] b, and α stays

and the next step asks the candidates whose predicted probability of the partly solved state is largest. The candidates
are the next `candidates` · P questions of the data stream, as in the published code, or all where there are no more.

What is ours: equal predictions are ordered at random, where the published code takes them in the order of argsort, and
would ask the same first questions at the start; a later round prefers questions that the step has not asked; a question
that several groups asked counts as one, and one with a single valid rollout as not asked, since one cannot be partly
right. A question that was never asked has the same prediction, 1/3, for ever, so it needs no memory; each of the others
takes 104 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from podsrl.control.base import View
from podsrl.control.candidates import check_train, count_right, draw_candidates, first
from podsrl.types import Group

Floats = NDArray[np.float64]
WRONG, PARTIAL, RIGHT = range(3)
"""The states, by which beliefs and counts are indexed."""


class Dynamics:
    """Asks the questions that a hidden Markov model each predicts to be partly solved.

    Args:
        forget: λ, how much of the old counts stays, 0 to 1.
        candidates: questions to choose from, per question that is asked.
    """

    def __init__(
        self, *, forget: Annotated[float, Field(ge=0, le=1)] = 0.7, candidates: Annotated[int, Field(ge=1)] = 32
    ) -> None:
        self._forget, self._candidates = forget, candidates
        self._index: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        """[K] questions that have been asked, ascending."""
        self._belief: Floats = np.empty((0, 3))
        self._counts: Floats = np.empty((0, 3, 3))

    def check_train(self, num_prompts: int, num_train: int) -> None:
        """UsageError: the training set is smaller than a step."""
        check_train(num_prompts, num_train, "dps")

    def questions(self, view: View, count: int) -> Sequence[int]:
        """The candidates that are most likely to be partly solved; again from the first where there are too few."""
        candidates = view.rng("dynamics").permutation(draw_candidates(view, count, self._candidates * count))
        return first(view, candidates, self.predicted(candidates)[:, PARTIAL], count)

    def predicted(self, indices: NDArray[np.int64]) -> Floats:
        """[len(indices), 3] predicted probability of each state of these questions."""
        found = np.full((len(indices), 3), 1 / 3)
        rows, is_known = self._rows(indices)
        found[is_known] = drift(self._counts[rows[is_known]], self._belief[rows[is_known]])
        return found

    def learn(self, groups: Sequence[Group]) -> None:
        """Update the beliefs with a step's groups, probes too."""
        indices, right, valid = count_right(groups)
        indices, right, valid = (array[valid > 1] for array in (indices, right, valid))
        self._remember(indices)
        after = drift(self._counts, self._belief)
        rows, _ = self._rows(indices)
        after[rows] = np.eye(3)[np.where(right == 0, WRONG, np.where(right == valid, RIGHT, PARTIAL))]
        xi = after[rows][:, :, None] * self._belief[rows][:, None, :] * transitions(self._counts[rows])
        xi /= xi.sum(axis=(1, 2), keepdims=True)
        self._counts[rows] = self._forget * self._counts[rows] + (1 - self._forget) + xi
        self._belief = after

    def state(self) -> dict[str, Any]:
        """Its three arrays."""
        return {"index": self._index, "belief": self._belief, "counts": self._counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._index, self._belief, self._counts = (np.array(state[key]) for key in ("index", "belief", "counts"))

    def _rows(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Where in the arrays each question stands, or would have to stand; and whether it does."""
        rows = np.searchsorted(self._index, indices)
        return rows, np.append(self._index, -1)[rows] == indices

    def _remember(self, indices: NDArray[np.int64]) -> None:
        """Make room for questions that were not asked before."""
        rows, is_known = self._rows(indices)
        if not is_known.all():
            places = rows[~is_known]
            self._index = np.insert(self._index, places, indices[~is_known])
            self._belief = np.insert(self._belief, places, 1 / 3, axis=0)
            self._counts = np.insert(self._counts, places, 1.0, axis=0)


def transitions(counts: Floats) -> Floats:
    """E[Φ] [K, 3, 3] of Dirichlet counts [K, 3, 3]: columns sum to 1.

    Example:
        >>> transitions(np.array([[[2.0, 1, 1], [1, 1, 1], [1, 1, 2]]]))[0, :, 0].tolist()
        [0.5, 0.25, 0.25]
    """
    means: Floats = counts / counts.sum(axis=1, keepdims=True)
    return means


def drift(counts: Floats, belief: Floats) -> Floats:
    """E[Φ] b: beliefs [K, 3] one step later, if nothing is seen."""
    later: Floats = np.einsum("kij,kj->ki", counts, belief / np.einsum("kij->kj", counts))
    return later
