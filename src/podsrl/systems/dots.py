"""DOTS, difficulty-targeted selection (arXiv 2506.05316): ask the questions that are half solved.

**The choice.** Every `every` steps a first round probes: it asks `num_references` questions, drawn at random, for
`num_rollouts` rollouts each, which no batch holds. A predictor then gives p for every candidate from what the
references' rollouts say, and the step asks its questions by

    P(i) ∝ exp(-|p_i - target| / temperature)    without replacement

The steps until the next probe use the same references. Where all references are answered alike, and before the first
probe, all predictions are equal, so the choice is uniform.

**The predictor.** A question's predicted success is a weighted mean over K reference questions, p_i = sum over j of
w_ij s_j, where s_j is the reference's share of right rollouts, and the weights are attention over features x:

    w_ij = softmax_j(q_i · k_j / τ),    q_i = (z_i, 1),    k_j = (z_j, -z_j² / 2),    z = x · β

which is exp(-(z_i - z_j)² / 2τ), normalised. Then a scale and a bias of its logit are fitted to the references.

What is ours:

    model       the paper embeds questions with a frozen language model, trains two three-layer projections and the
                calibration (from mean and deviation of s) offline, and a linear regression online. Here everything is
                learned online from the run's own probes: β is the ridge regression of the references' logits over all
                probes so far, older ones weighing less, scaled so that z has the standard deviation 1 over the newest
                references; τ = h² is Silverman's rule, h = K^(-1/5); and the calibration is the regression of the
                references' logits on their own predictions without themselves.
    features    those of `control/question_features.py`: lengths, and hashed n-grams.
    candidates  the next `num_candidates` questions of the data stream, or all where there are no more; a later round
                prefers questions that the step has not asked.
    replay      the published replay of groups is the system `dots_rr`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from podsrl.control.base import View
from podsrl.control.candidates import check_train, count_right, draw_candidates, first
from podsrl.control.question_features import NUM_FEATURES, features_of
from podsrl.errors import UsageError
from podsrl.types import Ask, Group

Count = Annotated[int, Field(ge=1)]
Floats = NDArray[np.float64]
MEMORY = 0.9
"""How much the sums of the regression keep per probe: it looks back about ten probes."""
RIDGE = 0.1
"""Penalty of the regression, in units of a feature's own sum of squares."""
LEAST_SCALE, MOST_SCALE = 0.25, 4.0
"""Bounds of the calibration's scale: few references fit it badly."""


class Difficulty:
    """Asks questions whose predicted success is near a target, and probes references.

    Args:
        num_references: questions of a probe.
        num_rollouts: of each reference.
        every: steps from one probe to the next.
        target: success to aim at, 0 to 1.
        temperature: of the choice; near 0 it takes the questions nearest to the target.
        num_candidates: questions that are predicted per step, if the training set has more.
    """

    def __init__(
        self,
        *,
        num_references: Count = 256,
        num_rollouts: Count = 8,
        every: Count = 2,
        target: Annotated[float, Field(ge=0, le=1)] = 0.5,
        temperature: Annotated[float, Field(gt=0)] = 1e-3,
        num_candidates: Count = 512,
    ) -> None:
        self._num_references, self._num_rollouts, self._every = num_references, num_rollouts, every
        self._target, self._temperature, self._num_candidates = target, temperature, num_candidates
        self._predictor = empty()

    def check_train(self, num_prompts: int, num_train: int) -> None:
        """UsageError: the training set is smaller than a step or a probe."""
        check_train(num_prompts, num_train, "dots")
        if self._num_references > num_train:
            raise UsageError(
                f"options.dots.num_references = {self._num_references}; the training set has {num_train} "
                "questions: lower it"
            )

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """What the probes so far say; a new probe gives a new predictor.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> features = rng.normal(size=(64, NUM_FEATURES))
        >>> right = np.where(features[:, 0] > 0, 8, 0)  # the first feature decides
        >>> predictor = empty().after(features, right, np.full(64, 8))
        >>> new = np.zeros((2, NUM_FEATURES))
        >>> new[:, 0] = -2, 2
        >>> predictor(new).round(1).tolist()
        [0.1, 0.9]
    """

    products: Floats
    """[D, D] sum of x xᵀ over references, each about its probe's mean."""
    targets: Floats
    """[D] sum of x y, y the logit of success."""
    features: Floats
    """[K, D] of the newest references."""
    right: NDArray[np.int64]
    """[K] their right rollouts."""
    valid: NDArray[np.int64]
    """[K] their rollouts."""

    def after(self, features: Floats, right: NDArray[np.int64], valid: NDArray[np.int64]) -> Predictor:
        """The predictor that knows K references more: features [K, D], and how many of how many rollouts were right."""
        x, y = features - features.mean(axis=0), _logit(right, valid)
        return Predictor(
            products=MEMORY * self.products + x.T @ x,
            targets=MEMORY * self.targets + x.T @ (y - y.mean()),
            features=features,
            right=right,
            valid=valid,
        )

    def __call__(self, features: Floats) -> Floats:
        """[N] predicted success of questions with these features [N, D]; 1/2 before the first probe."""
        if not len(self.right):
            return np.full(len(features), 0.5)
        scale, bias = self.calibration()
        return _success(scale * _log_odds(self.weights(features) @ self.rates) + bias)

    @property
    def rates(self) -> Floats:
        """[K] share of right rollouts of each reference, s."""
        rates: Floats = self.right / self.valid
        return rates

    def weights(self, features: Floats) -> Floats:
        """[N, K] attention of questions to the references; each row sums to 1."""
        return _softmax(self._scores(features))

    def calibration(self) -> tuple[float, float]:
        """Scale and bias of a prediction's logit; (1, 0) where the references say nothing about them."""
        if len(self.right) < 3:
            return 1.0, 0.0
        scores = self._scores(self.features)
        np.fill_diagonal(scores, -np.inf)
        x, y = _log_odds(_softmax(scores) @ self.rates), _logit(self.right, self.valid)
        x, spread = x.clip(-3, 3), float(x.var())
        if spread < 1e-6:
            return 1.0, 0.0
        scale = float(np.clip(np.mean((x - x.mean()) * (y - y.mean())) / spread, LEAST_SCALE, MOST_SCALE))
        return scale, float(y.mean() - scale * x.mean())

    def _scores(self, features: Floats) -> Floats:
        """q · k / τ, [N, K]."""
        beta = self.projection()
        center = self.features.mean(axis=0)
        z, k = (features - center) @ beta, (self.features - center) @ beta
        scores: Floats = (np.outer(z, k) - k**2 / 2) * len(k) ** 0.4
        return scores

    def projection(self) -> Floats:
        """β [D]; zeros where the references are all alike."""
        spread = np.diag(self.products)
        scale = np.sqrt(np.where(spread > 1e-9 * max(spread.max(), 1e-300), spread, np.inf))  # inf: a constant feature
        correlation = self.products / np.outer(scale, scale)
        ridge = RIDGE * np.eye(len(scale))
        beta = np.linalg.solve(correlation + ridge, self.targets / scale) / scale
        deviation = float((self.features @ beta).std())
        return beta / deviation if deviation > 1e-9 else np.zeros_like(beta)


def empty() -> Predictor:
    """Before the first probe."""
    return Predictor(
        products=np.zeros((NUM_FEATURES, NUM_FEATURES)),
        targets=np.zeros(NUM_FEATURES),
        features=np.zeros((0, NUM_FEATURES)),
        right=np.zeros(0, dtype=np.int64),
        valid=np.zeros(0, dtype=np.int64),
    )


def _softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    normal: Floats = weights / weights.sum(axis=1, keepdims=True)
    return normal


def _logit(right: NDArray[np.int64], valid: NDArray[np.int64]) -> Floats:
    """Log odds of counts, finite: half a rollout is added to either side (Haldane 1956)."""
    odds: Floats = np.log((right + 0.5) / (valid - right + 0.5))
    return odds


def _log_odds(share: Floats) -> Floats:
    inside = share.clip(1e-3, 1 - 1e-3)
    odds: Floats = np.log(inside / (1 - inside))
    return odds


def _success(odds: Floats) -> Floats:
    success: Floats = 1 / (1 + np.exp(-odds))
    return success
