"""The ridge regression against least squares; what it remembers, and what it never predicts."""

from __future__ import annotations

import numpy as np

from loops import each
from podsrl.lib.ridge import Ridge, fitted


@each("seed, size, width", [(seed, size, width) for seed in range(6) for size, width in ((3, 9), (9, 3), (5, 5))])
def test_the_ridge_is_the_least_squares_solution_with_rows_for_the_penalty(seed: int, size: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    features, targets, ridge = rng.normal(2, 3, (size, width)), rng.normal(size=size), 0.01 * 10**seed
    features[:, 0] = 7.0
    means, spreads, weights = fitted(features, targets, ridge)
    assert spreads[0] == 1.0 and weights[0] == 0.0
    z = (features - features.mean(0)) / np.where(features.std(0) > 0, features.std(0), 1)
    rows, wanted = np.vstack([z, np.sqrt(ridge) * np.eye(width)]), np.append(targets - targets.mean(), np.zeros(width))
    np.testing.assert_allclose(weights, np.linalg.lstsq(rows, wanted, rcond=None)[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(means, features.mean(0))


def test_it_predicts_nothing_beyond_what_it_has_seen_and_remembers_the_newest_rows() -> None:
    ridge = Ridge(1e-9, 3)
    assert not ridge.is_fitted
    ridge.learn(np.array([[9.0], [0.0]]), np.array([5.0, 0.25]))
    ridge.learn(np.array([[1.0], [2.0]]), np.array([0.5, 0.75]))
    assert ridge.is_fitted and ridge.mean == 0.5
    np.testing.assert_allclose(ridge.predicted(np.array([[0.5], [1.0], [9.0], [-9.0]])), [0.375, 0.5, 0.75, 0.25])
    again = Ridge(1e-9, 3)
    again.restore(ridge.state())
    assert (again.predicted(np.array([[0.3]])) == ridge.predicted(np.array([[0.3]]))).all()
