"""Rewards that differ by rounding alone: 0.3, and 0.1 + 0.2."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

SHARE = 2.0**-50


def are_equal(low: Any, high: Any) -> Any:
    """Whether two numbers differ by rounding alone: by at most 2^-50 of their magnitudes together, some 8 ulps.

    Args:
        low, high: float64, or arrays or tensors of them; `low` is not above `high`.

    Example:
        >>> are_equal(0.3, 0.1 + 0.2), are_equal(1.0, 1.0 + 1e-9)
        (True, False)
    """
    return high - low <= SHARE * abs(low) + SHARE * abs(high)


def has_signal(rewards: Collection[float]) -> bool:
    """Whether some of a group's rewards differ, so that its advantages are not all 0.

    Example:
        >>> has_signal([0.3, 0.1 + 0.2]), has_signal([0.0, 1.0]), has_signal([])
        (False, True, False)
    """
    return len(rewards) > 0 and not are_equal(min(rewards), max(rewards))
