"""Whole groups to processes, so that all have about as much to train: longest processing time first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def share_groups(costs: Sequence[int], num_processes: int) -> list[list[int]]:
    """Give each group to the process that has least so far, the costliest group first.

    The largest load is at most 4/3 - 1/(3K) of the smallest possible one (Graham, "Bounds on Multiprocessing Timing
    Anomalies", 1969, theorem 2).

    Args:
        costs: of each group, ≥ 0: the tokens that go through the model.
        num_processes: K ≥ 1.

    Returns:
        For each process the ascending indices of its groups; a partition. The same on every process.

    Example:
        >>> share_groups([5, 3, 3, 1], 2)
        [[0, 3], [1, 2]]
    """
    shares: list[list[int]] = [[] for _ in range(num_processes)]
    loads = [(0, 0, process) for process in range(num_processes)]  # load, groups: those without cost are spread too
    for group in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, count, process = heapq.heappop(loads)
        shares[process].append(group)
        heapq.heappush(loads, (load + costs[group], count + 1, process))
    return [sorted(share) for share in shares]
