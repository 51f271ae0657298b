"""Our losses and gradients are TRL's on the same tokens, rewards and off-policy log-probabilities."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("trl")

from benchmarks.trl.losses import TRL_LOSSES, compare_losses


@pytest.fixture(scope="module")
def compared() -> dict[str, dict[str, float]]:
    return compare_losses()


@pytest.mark.parametrize("name", TRL_LOSSES)
def test_loss_and_gradient_equal_trls_where_the_bound_acts(name: str, compared: dict[str, Any]) -> None:
    result = compared[name]
    assert abs(result["trl"]) > 1e-3  # neither is 0 for want of a signal
    assert result["difference"] < 1e-5
    assert result["gradient_difference"] < 1e-5
    assert 0.01 < result["clip_fraction"] < 0.9


def test_the_five_losses_are_different_ones(compared: dict[str, Any]) -> None:
    assert len({round(result["ours"], 4) for result in compared.values()}) == len(TRL_LOSSES) == 5
