"""What the measured comparison of the systems says, in rollouts that are needed."""

from __future__ import annotations

from typing import Any

from podsrl.compare.systems import needed


def result(**savings: tuple[float | None, float, float | None]) -> dict[str, Any]:
    """A comparison with grpo, from point, low and high of each system's saving."""
    found = {
        arm: {"saving": {"point": point, "low": low, "high": high, "share_unreached": 0.0}}
        for arm, (point, low, high) in {"grpo": (1.0, 1.0, 1.0), **savings}.items()
    }
    return {"baseline": "grpo", "fraction": 0.95, "arms": found, "costs": {"rollouts": found}}


def test_a_quarter_of_the_saving_is_four_times_as_much_needed() -> None:
    found = needed(result(pods=(0.25, 0.125, 0.5)), "pods")
    assert found is not None and (found.low, found.point, found.high) == (2.0, 4.0, 8.0)
    assert needed(result(), "pods") is None and needed(result(), "grpo", "tokens") is None
