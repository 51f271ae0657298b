"""`python -m benchmarks baselines`: variances from inner products against variances of the gradients, and its table."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.baselines import _ratio, _variance, table


def test_the_variance_of_gradients_is_read_off_their_inner_products() -> None:
    gradients = np.random.default_rng(0).normal(3.0, 2.0, (7, 40))
    assert _variance(gradients @ gradients.T) == pytest.approx(gradients.var(axis=0, ddof=1).sum())


def test_the_ratio_is_within_its_interval_and_of_scaled_gradients_the_square_of_the_scale() -> None:
    rng = np.random.default_rng(1)
    first = rng.normal(size=(12, 30))
    second = first + 0.5 * rng.normal(size=(12, 30))
    found = _ratio(second @ second.T, first @ first.T)
    assert found["low"] < found["ratio"] < found["high"]
    scaled = _ratio(9 * first @ first.T, first @ first.T)
    assert [scaled[name] for name in ("ratio", "low", "high")] == pytest.approx([9, 9, 9])


def test_a_row_says_the_ratio_and_its_interval() -> None:
    ratios = {"ridge 0.01": {"ratio": 1.234, "low": 1.1, "high": 1.4}}
    text = table({"ratios": ratios, "right": 0.314, "num_learned": 20, "num_measured": 60})
    assert "| ridge 0.01 | 1.23× (1.10–1.40) |" in text
    assert "60 steps after 20 of learning; 31% of the rollouts are right" in text
