"""Assign groups to processes so that the training load is balanced."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.lib.balance import longest_first


def share_groups(costs: Sequence[int], num_processes: int) -> list[list[int]]:
    """Give each group to the process that has the least so far, the costliest group first (`lib.balance`).

    Args:
        costs: of each group, at least 0: the tokens that go through the model.
        num_processes: at least 1.

    Returns:
        For each process the ascending indices of its groups; a partition. The same on every process.

    Example:
        >>> share_groups([5, 3, 3, 1], 2)
        [[0, 3], [1, 2]]
    """
    return [sorted(share) for share in longest_first(costs, num_processes, spread_ties=True)]
