"""Cutting groups into chunks."""

from __future__ import annotations

import pytest

from podsrl.errors import UsageError
from podsrl.select.chunks import split_groups
from podsrl.types import Completion, Group, Rollout, Task


def group(name: str, rewards: list[float]) -> Group:
    """A group whose rollouts have these rewards."""
    rollouts = tuple(
        Rollout(
            completion=Completion(
                request_id=name, index=i, token_ids=(1,), logprobs=(-0.1,), finish_reason="stop", version=0
            ),
            text="",
            reward=reward,
            parts={},
            is_correct=False,
        )
        for i, reward in enumerate(rewards)
    )
    return Group(id=name, task=Task(id=name, prompt="?", answer="1"), prompt_ids=(5,), rollouts=rollouts)


def rewards_of(groups: list[Group]) -> list[list[float]]:
    return [[rollout.reward for rollout in chunk.rollouts] for chunk in groups]


def test_chunks_are_consecutive_rollouts_in_the_groups_order() -> None:
    chunks = split_groups([group("a", [0, 1, 2, 3, 4, 5]), group("b", [6, 7, 8])], 3)
    assert rewards_of(chunks) == [[0, 1], [2, 3], [4, 5], [6], [7], [8]]
    assert [chunk.id for chunk in chunks] == ["a#0", "a#1", "a#2", "b#0", "b#1", "b#2"]
    assert [chunk.task.id for chunk in chunks] == ["a", "a", "a", "b", "b", "b"]


def test_one_chunk_leaves_the_groups_as_they_are() -> None:
    groups = [group("a", [0, 1])]
    assert split_groups(groups, 1) == groups


@pytest.mark.parametrize("num_chunks", [4, 7])
def test_a_number_that_does_not_divide_the_group_is_refused(num_chunks: int) -> None:
    with pytest.raises(UsageError, match=f"num_chunks = {num_chunks} does not divide the 6 rollouts of group 'a'"):
        split_groups([group("a", [0, 1, 2, 3, 4, 5])], num_chunks)
