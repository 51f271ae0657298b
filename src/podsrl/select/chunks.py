"""Groups cut into chunks: selection and advantages then see each chunk alone.

The paper's multi-GPU settings do this (PODS, arXiv 2504.13818): 512 rollouts a prompt are four chunks of 128, of
which 32 each are kept and normalised.

Goes in: groups of n rollouts. Comes out: groups of n / c rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from podsrl.errors import UsageError
from podsrl.types import Group


def split_groups(groups: Sequence[Group], num_chunks: int) -> list[Group]:
    """Cut each group into equal chunks of consecutive rollouts.

    Args:
        groups: P groups of n rollouts; n may differ between groups.
        num_chunks: c, at least 1, a divisor of every n.

    Returns:
        P · c groups in the same order; chunk i of group "s3/q" is named "s3/q#i". With one chunk: the groups.

    Raises:
        UsageError: a group that c does not divide.

    Example: a group of 6 rollouts with num_chunks = 3 becomes rollouts (0, 1), (2, 3) and (4, 5).
    """
    if num_chunks == 1:
        return list(groups)
    return [chunk for group in groups for chunk in _split(group, num_chunks)]


def _split(group: Group, num_chunks: int) -> list[Group]:
    size, rest = divmod(len(group.rollouts), num_chunks)
    if rest or size == 0:
        raise UsageError(
            f"select.num_chunks = {num_chunks} does not divide the {len(group.rollouts)} rollouts of group "
            f"{group.id!r} into equal chunks; choose a divisor"
        )
    return [
        replace(group, id=f"{group.id}#{i}", rollouts=group.rollouts[i * size : (i + 1) * size])
        for i in range(num_chunks)
    ]
