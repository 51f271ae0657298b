"""Selection in ART's own gathering of trajectories."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import pytest
from transformers import masking_utils

from podsrl.errors import UsageError
from podsrl.integrations.art import keep
from podsrl.select import max_variance

mask_arguments = masking_utils._preprocess_mask_arguments
art = pytest.importorskip("art", reason="openpipe-art is not installed (make test-peers)")
# ART replaces it when it is imported, with one that fails in newer releases of transformers; other tests run models.
masking_utils._preprocess_mask_arguments = mask_arguments


async def rollout(reward: float) -> Any:
    if reward < 0:
        raise ValueError("no answer")
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": f"{reward}"}]
    return art.Trajectory(messages_and_choices=messages, reward=reward)


def gather(groups: list[list[float]], after_each: Any, **options: Any) -> list[Any]:
    """A negative reward is a rollout that fails."""

    async def run() -> list[Any]:
        asked: list[Awaitable[Any]] = [
            art.TrajectoryGroup((rollout(reward) for reward in group), metadata={"place": place}, logs=["a line"])
            for place, group in enumerate(groups)
        ]
        gathered: list[Any] = await art.gather_trajectory_groups(asked, after_each=after_each, **options)
        return gathered

    return asyncio.run(run())


def rewards_of(group: Any) -> list[float]:
    return [trajectory.reward for trajectory in group]


def test_groups_of_any_size_keep_what_the_rule_chooses() -> None:
    draws = random.Random(0)
    groups = [[draws.choice([0.0, 0.5, 1.0]) for _ in range(size)] for size in (64, 17, 16, 3)]
    for group, before in zip(gather(groups, keep(16)), groups, strict=True):
        kept = rewards_of(group)
        assert len(kept) == min(16, len(before))
        if len(before) > 16:
            assert sorted(kept) == sorted(before[i] for i in max_variance(before, 16))
            assert group.metrics == {"num_generated": len(before), "reward_generated": sum(before) / len(before)}
        else:
            assert group.metrics == {}


def test_exceptions_metadata_and_logs_stay() -> None:
    [group] = gather([[0.0, 1.0, -1.0, 0.5, 0.25, -1.0]], keep(2), max_exceptions=2)
    assert sorted(rewards_of(group)) == [0.0, 1.0]
    assert [exception.message for exception in group.exceptions] == ["no answer"] * 2
    assert group.metadata == {"place": 0} and group.logs == ["a line"]


def test_a_reward_that_is_not_finite_ends_the_gathering() -> None:
    with pytest.raises(UsageError, match="nan"):
        gather([[0.0, float("nan"), 1.0]], keep(2))
