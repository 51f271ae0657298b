"""Assign groups to processes so that the training load is balanced."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.lib.balance import longest_first


def share_groups(costs: Sequence[int], num_processes: int) -> list[list[int]]:
    """For each process the ascending indices of its groups, so that the tokens that they cost are balanced.

    Each group goes to the process that has the least so far, the costliest group first (`lib.balance`).

    Example:
        >>> share_groups([5, 3, 3, 1], 2)
        [[0, 3], [1, 2]]
    """
    return [sorted(share) for share in longest_first(costs, num_processes, spread_ties=True)]
