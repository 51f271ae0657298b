"""Lines of groups.jsonl: written and read back, order, signal, prompts of chat messages."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from podsrl.run.group_log import parse_group, record_group
from podsrl.types import Completion, Group, Rollout, Selection, Task
from podsrl.update import to_samples

NAN = float("nan")


def group_of(rewards: list[float], **changes: Any) -> Group:
    """Completions of two tokens; one without a reward was pruned."""
    return Group(
        id="s1/0/7+5",
        task=Task(**({"id": "7+5", "prompt": "7 + 5?", "answer": "12"} | changes)),
        prompt_ids=(1, 2),
        rollouts=tuple(
            Rollout(
                completion=Completion(
                    request_id="s1/0/7+5",
                    index=index,
                    token_ids=(3, 4),
                    logprobs=(-0.5, -0.5),
                    finish_reason="pruned" if reward != reward else "stop",
                    version=0,
                ),
                text="12",
                reward=reward,
                parts={"correct": reward},
                is_correct=reward == 1.0,
            )
            for index, reward in enumerate(rewards)
        ),
    )


def line_of(rewards: list[float], advantages: list[float] | None = None, **changes: Any) -> dict[str, Any]:
    """A line in which all rollouts are kept, by default with their rewards' distance from 0.5 as advantages."""
    selection = Selection(group_id="s1/0/7+5", kept=tuple(range(len(rewards))), dropped={})
    own, group = advantages or [reward - 0.5 for reward in rewards], group_of(rewards, **changes)
    return record_group(1, group, selection, to_samples([group], [selection], [torch.tensor(own)])).to_json()


def test_a_record_survives_its_line() -> None:
    group = group_of([0.0, 1.0, 1.0, NAN])
    selection = Selection(group_id="s1/0/7+5", kept=(0, 2), dropped={1: "not_selected", 3: "pruned"})
    record = record_group(1, group, selection, to_samples([group], [selection], [torch.tensor([-1.0, 1.0])]))
    assert parse_group(json.loads(json.dumps(record.to_json()))) == record
    assert [rollout.advantage for rollout in record.rollouts] == [-1.0, None, 1.0, None]
    assert [rollout.is_kept for rollout in record.rollouts] == [True, False, True, False]
    assert [rollout.reward for rollout in record.rollouts] == [0.0, 1.0, 1.0, None]
    assert [rollout.is_pruned for rollout in record.rollouts] == [False, False, False, True]


def test_an_advantage_per_token_loses_its_padding() -> None:
    selection = Selection(group_id="s1/0/7+5", kept=(0, 1), dropped={})
    group, padded = group_of([0.0, 1.0]), torch.tensor([[-1.0, -0.5, 0.0], [1.0, 0.0, 0.0]])
    record = record_group(1, group, selection, to_samples([group], [selection], [padded]))
    assert [rollout.advantage for rollout in record.rollouts] == [(-1.0, -0.5), (1.0, 0.0)]
    assert [rollout.mean_advantage for rollout in record.rollouts] == [-0.75, 0.5]
    assert parse_group(json.loads(json.dumps(record.to_json()))) == record


def test_a_line_says_which_weights_made_each_token() -> None:
    group = group_of([0.0, 1.0])
    mixed = replace(group.rollouts[1].completion, version=4, versions=(4, 5))
    group = replace(group, rollouts=(group.rollouts[0], replace(group.rollouts[1], completion=mixed)))
    selection = Selection(group_id=group.id, kept=(), dropped={0: "not_selected", 1: "not_selected"})
    line = json.loads(json.dumps(record_group(1, group, selection, []).to_json()))
    assert [rollout.version for rollout in parse_group(line).rollouts] == [0, (4, 5)]
    for rollout in line["rollouts"]:
        del rollout["version"]  # an older log
    assert [rollout.version for rollout in parse_group(line).rollouts] == [None, None]
    line["rollouts"][0]["version"] = ["4"]
    with pytest.raises(ValueError, match="version"):
        parse_group(line)


def test_rollouts_are_ordered_by_reward_and_those_without_come_last() -> None:
    group = parse_group(line_of([0.5, NAN, -1.0, 1.0, 0.5]))
    assert [rollout.index for rollout in group.by_reward()] == [3, 0, 4, 2, 1]


def test_a_group_has_signal_where_kept_rewards_differ() -> None:
    assert not parse_group(line_of([0.0, 1.0])).is_zero_signal
    assert parse_group(line_of([1.0, 1.0])).is_zero_signal
    assert parse_group(line_of([])).is_zero_signal


def test_a_group_whose_advantages_are_all_zero_has_no_signal() -> None:
    # of two chunks, each with equal rewards
    assert parse_group(line_of([0.0, 0.0, 1.0, 1.0], [0.0] * 4)).is_zero_signal


def test_chat_messages_are_written_with_their_roles() -> None:
    prompt = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "7+5?"})
    assert parse_group(line_of([1.0], prompt=prompt)).prompt == "system: Be brief.\nuser: 7+5?"


def test_a_chunk_of_an_older_log_is_read() -> None:
    assert parse_group(line_of([1.0]) | {"group": "s1/0/7+5#1"}).group == "s1/0/7+5#1"


def test_a_reward_that_is_nan_counts_as_none() -> None:
    line = line_of([1.0])
    line["rollouts"][0] |= {"reward": NAN, "parts": {"correct": None}}
    [rollout] = parse_group(line).rollouts
    assert (rollout.reward, rollout.parts) == (None, {"correct": None})


@pytest.mark.parametrize(
    "changes",
    [{"advantage": "high"}, {"reward": True}, {"reward": 1e300}, {"kept": None}, {"index": 1.5}, {"is_correct": "yes"}],
    ids=str,
)
def test_another_value_than_a_run_writes_is_refused(changes: dict[str, Any]) -> None:
    line = line_of([1.0])
    line["rollouts"][0] |= changes
    with pytest.raises(ValueError, match=next(iter(changes))):
        parse_group(line)


def test_a_line_that_misses_a_field_is_no_group() -> None:
    line = line_of([1.0])
    del line["rollouts"][0]["advantage"]
    with pytest.raises(KeyError, match="advantage"):
        parse_group(line)
