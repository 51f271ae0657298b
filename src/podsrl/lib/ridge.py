"""A ridge regression that learns online: it is fitted to the newest rows that it was shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Ridge:
    """Predicts targets from features, and never beyond the lowest and the highest target that it remembers.

    Args:
        ridge: penalty of the squared weights, against a sum of squared errors.
        window: rows that are remembered.
    """

    def __init__(self, ridge: float, window: int) -> None:
        self._ridge, self._window = ridge, window
        self._features, self._targets, self._fit = np.zeros((0, 0)), np.zeros(0), np.zeros((3, 0))

    @property
    def is_fitted(self) -> bool:
        """Whether it was shown anything."""
        return len(self._targets) > 0

    @property
    def mean(self) -> float:
        """Of the targets: what is to be expected where no features are known."""
        return float(self._targets.mean())

    def predicted(self, features: Floats) -> Floats:
        """[N] predictions from features [N, F], once it is fitted."""
        means, spreads, weights = self._fit
        return np.clip(self.mean + (features - means) / spreads @ weights, self._targets.min(), self._targets.max())

    def learn(self, features: Floats, targets: Floats) -> None:
        """Remember N rows of features [N, F], as float32 holds them, with their targets [N], and fit."""
        features = features.astype(np.float32).astype(np.float64)
        before = self._features if self.is_fitted else features[:0]
        self._features = np.concatenate([before, features])[-self._window :]
        self._targets = np.append(self._targets, targets)[-self._window :]
        self._fit = fitted(self._features, self._targets, self._ridge)

    def state(self) -> dict[str, Any]:
        """What is remembered, and the regression."""
        return {"features": self._features.astype(np.float32), "targets": self._targets, "fit": self._fit}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._features = state["features"].astype(np.float64)
        self._targets, self._fit = state["targets"], state["fit"]


def fitted(features: Floats, targets: Floats, ridge: float) -> Floats:
    """Means, standard deviations (1 where it is 0) and weights [3, F] of the ridge regression of targets [N].

    The weights w minimise the sum over N of (target - mean - z w)² + ridge · |w|², z being the standardised features
    [N, F]; the smaller of the two systems that give them is solved.

    Example:
        >>> fitted(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), 2.0).tolist()
        [[1.0], [1.0], [0.25]]
    """
    means, spreads = features.mean(axis=0), features.std(axis=0)
    spreads = np.where(spreads > 0, spreads, 1.0)
    z, above = (features - means) / spreads, targets - targets.mean()
    if len(features) < features.shape[1]:
        weights = z.T @ np.linalg.solve(z @ z.T + ridge * np.eye(len(z)), above)
    else:
        weights = np.linalg.solve(z.T @ z + ridge * np.eye(z.shape[1]), z.T @ above)
    return np.stack([means, spreads, weights])
