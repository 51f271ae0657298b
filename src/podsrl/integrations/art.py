"""Selection in ART (openpipe-art): `gather_trajectory_groups(groups, after_each=keep(16))`. See docs/from-art.md."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

from podsrl.integrations.choice import Choice

if TYPE_CHECKING:
    from art import TrajectoryGroup


def keep(
    num_kept: int, rule: str = "max_variance", *, options: Mapping[str, Any] | None = None, seed: int = 0
) -> Callable[[TrajectoryGroup], Awaitable[TrajectoryGroup]]:
    """Keep the trajectories of each group that are worth an update.

    A group of at most `num_kept` trajectories stays as it is. A larger one becomes a group of the kept, with the same
    exceptions, metadata, metrics and logs, and two metrics more: `num_generated`, and `reward_generated`, the mean
    reward over all its trajectories. ART computes advantages afterwards, from the kept.

    ART orders groups and their trajectories as they finish, so the same `seed` draws for others in another run.

    Args:
        num_kept, rule, options, seed: see `podsrl.integrations.choice.Choice`.

    Returns:
        A function for the parameter `after_each` of `art.gather_trajectory_groups`.

    Raises:
        UsageError: as of `Choice`; when called, a reward that is not finite.
    """
    choose = Choice(num_kept, rule, options, seed)

    async def after_each(group: TrajectoryGroup) -> TrajectoryGroup:
        rewards = [trajectory.reward for trajectory in group.trajectories]
        kept = choose(rewards)
        if len(kept) == len(rewards):
            return group
        smaller = copy.copy(group)
        smaller.trajectories = [group.trajectories[place] for place in kept]
        smaller.metrics |= {"num_generated": len(rewards), "reward_generated": fmean(rewards)}
        return smaller

    return after_each
