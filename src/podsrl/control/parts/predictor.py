"""Predict how often questions are answered right from how often a few others are (DOTS, arXiv 2506.05316).

A question's predicted success is a weighted mean over K reference questions, p_i = sum over j of w_ij s_j, where s_j is
the reference's share of right rollouts, and the weights are attention over features x:

    w_ij = softmax_j(q_i · k_j / τ),    q_i = (z_i, 1),    k_j = (z_j, -z_j² / 2),    z = x · β

which is exp(-(z_i - z_j)² / 2τ), normalised. Then a scale and a bias of its logit are fitted to the references.

What is ours: the paper embeds questions with a frozen language model, trains two three-layer projections and the
calibration (from mean and deviation of s) offline, and a linear regression online. Here everything is learned online
from the run's own probes: x are features of the text; β is the ridge regression of the references' logits over all
probes so far, older ones weighing less, scaled so that z has the standard deviation 1 over the newest references;
τ = h² is Silverman's rule, h = K^(-1/5); and the calibration is the regression of the references' logits on their own
predictions without themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podsrl.control.parts.features import NUM_FEATURES

Floats = NDArray[np.float64]
MEMORY = 0.9
"""How much the sums of the regression keep per probe: it looks back about ten probes."""
RIDGE = 0.1
"""Penalty of the regression, in units of a feature's own sum of squares."""
LEAST_SCALE, MOST_SCALE = 0.25, 4.0
"""Bounds of the calibration's scale: few references fit it badly."""


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
