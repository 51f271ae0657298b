"""Divide work so that the largest share is small: longest first, each onto the least loaded (Graham 1969)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def longest_first(costs: Sequence[float], num_shares: int) -> list[list[int]]:
    """Give each item, the costliest first, to the share with the least cost so far.

    The largest share is at most 4/3 - 1/(3K) times the smallest possible one (Graham, "Bounds on Multiprocessing Timing
    Anomalies", 1969, theorem 2).

    Of equally loaded shares the one with the fewest items takes the item, so that items without cost are spread too.
    Each share lists its items' places, costliest first, equal costs in their order.

    Example:
        >>> longest_first([5, 3, 3, 1], 2), longest_first([0, 0], 2)
        ([[0, 3], [1, 2]], [[0], [1]])
    """
    shares: list[list[int]] = [[] for _ in range(num_shares)]
    loads: list[tuple[float, int, int]] = [(0, 0, share) for share in range(num_shares)]
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        load, count, share = loads[0]
        shares[share].append(place)
        heapq.heapreplace(loads, (load + costs[place], count + 1, share))
    return shares
