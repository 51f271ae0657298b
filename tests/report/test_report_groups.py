"""Recorded groups: order, signal, prompts of chat messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from podsrl.report.groups import parse_group

Make = Callable[..., Any]


def test_rollouts_are_ordered_by_reward_and_the_invalid_ones_come_last(make_group: Make, make_rollout: Make) -> None:
    rewards = [0.5, None, -1.0, 1.0, 0.5]
    group = parse_group(make_group(1, rollouts=[make_rollout(i, reward) for i, reward in enumerate(rewards)]))
    assert [rollout.index for rollout in group.by_reward()] == [3, 0, 4, 2, 1]


def test_a_group_has_signal_where_kept_rewards_differ(make_group: Make, make_rollout: Make) -> None:
    def group(*rewards: float) -> bool:
        kept = [make_rollout(i, reward, kept=True, advantage=0.0) for i, reward in enumerate(rewards)]
        return parse_group(make_group(1, rollouts=[*kept, make_rollout(9, 0.3)])).is_zero_signal

    assert not group(0.0, 1.0)
    assert group(1.0, 1.0)
    assert group()


def test_chat_messages_are_written_with_their_roles(make_group: Make) -> None:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "7+5?"}]
    group = parse_group(make_group(1, task={"id": "x", "prompt": prompt, "answer": 12}))
    assert group.prompt == "system: Be brief.\nuser: 7+5?"
    assert group.answer == "12"


def test_a_reward_that_is_nan_counts_as_none(make_group: Make, make_rollout: Make) -> None:
    rollout = make_rollout(0, float("nan"), parts={"correct": None})
    group = parse_group(make_group(1, rollouts=[rollout]))
    assert group.rollouts[0].reward is None
    assert group.rollouts[0].parts == {"correct": None}


def test_a_line_that_misses_a_field_is_no_group(make_group: Make) -> None:
    line = make_group(1)
    del line["rollouts"][0]["advantage"]
    with pytest.raises(KeyError, match="advantage"):
        parse_group(line)
