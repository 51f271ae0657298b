"""Lines of groups.jsonl: written and read back, order, signal, prompts of chat messages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import made
from loops import each
from made import rollout, selection
from podsrl.run.group_log import LARGEST, group_line, parse_group
from podsrl.types import Group, Sample, Selection, Task
from podsrl.update import to_samples

NAN = float("nan")


def group_of(rewards: list[float], **changes: Any) -> Group:
    task = Task(**({"id": "7+5", "prompt": "7 + 5?", "answer": "12"} | changes))
    return made.group_of("s1/0/7+5", *rewards, task=task)


def samples_of(group: Group, selection: Selection, advantages: list[float]) -> list[Sample]:
    return to_samples([group], [selection], [torch.tensor(advantages)])


def written(line: dict[str, Any]) -> Any:
    """What a reader of the file gets."""
    return json.loads(json.dumps(line))


def line_of(rewards: list[float], advantages: list[float] | None = None, **changes: Any) -> dict[str, Any]:
    """A line in which all rollouts are kept, by default with their rewards' distance from 0.5 as advantages."""
    own, group = advantages or [reward - 0.5 for reward in rewards], group_of(rewards, **changes)
    kept = selection(group, range(len(rewards)))
    return written(group_line(1, group, kept, samples_of(group, kept, own)))


FAILED: Any = {"status": "failed", "invalid_reason": "short raised"}
FOUR = replace(
    group_of([]),
    rollouts=(
        rollout(1.25, 2, index=0, text="12", parts={"correct": 1.0, "short": 0.5}, is_correct=True),
        rollout(0.25, 3, index=1, text="1 2", parts={"correct": 0.0, "short": 0.5}, finish_reason="length"),
        rollout(
            0.5,
            1,
            index=2,
            text="?",
            parts={"correct": 0.0, "short": NAN},
            status="failed",
            invalid_reason="short raised",
        ),
        rollout(NAN, 5, index=3, text="7 7 7", **made.ended("pruned")),
    ),
)
SOME_KEPT = selection(FOUR, (0, 1), dropped={2: "invalid", 3: "pruned"})
NAMES = (
    *("index", "text", "reward", "parts", "is_correct", "invalid_reason"),
    *("num_tokens", "status", "finish_reason", "kept", "drop_reason", "advantage", "version"),
)
ROWS = (
    (0, "12", 1.25, {"correct": 1.0, "short": 0.5}, True, None, 2, "done", "stop", True, None, 0.75, 0),
    (1, "1 2", 0.25, {"correct": 0.0, "short": 0.5}, False, None, 3, "done", "length", True, None, -0.75, 0),
    (
        2,
        "?",
        None,
        {"correct": 0.0, "short": None},
        False,
        "short raised",
        1,
        "failed",
        "stop",
        False,
        "invalid",
        None,
        0,
    ),
    (3, "7 7 7", None, {}, False, None, 5, "pruned", None, False, "pruned", None, 0),
)
LINE: dict[str, Any] = {
    "step": 9,
    "group": "s1/0/7+5",
    "task": {"id": "7+5", "prompt": "7 + 5?", "answer": "12", "columns": {}},
    "rollouts": [dict(zip(NAMES, row, strict=True)) for row in ROWS],
}


def test_a_line_written_by_hand_is_the_line_of_its_group_and_is_read_back() -> None:
    line = written(group_line(9, FOUR, SOME_KEPT, samples_of(FOUR, SOME_KEPT, [0.75, -0.75])))
    assert line == LINE
    assert list(line["rollouts"][0]) == list(LINE["rollouts"][0])


def test_the_line_has_the_documented_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    section = page.split("## `groups.jsonl`: whole groups\n")[1].split("\n## ")[0]
    example = json.loads(section.split("```json\n")[1].split("```")[0])
    assert list(example) == list(LINE) and list(example["task"]) == list(LINE["task"])
    assert list(example["rollouts"][0]) == list(LINE["rollouts"][0])


def test_a_number_is_believed_up_to_1e100_and_no_further() -> None:
    line = line_of([1.0])
    line["rollouts"][0] |= {"reward": -1e100}
    assert parse_group(line).rollouts[0].reward == -1e100 == -LARGEST
    line["rollouts"][0] |= {"reward": 1.001e100}
    with pytest.raises(ValueError, match=r"reward = 1.001e\+100"):
        parse_group(line)


def test_an_advantage_per_token_loses_its_padding() -> None:
    group = made.group_of("s1/0/7+5", 0.0, 1.0, lengths=(2, 1))
    kept, padded = selection(group, (0, 1)), torch.tensor([[-1.0, -0.5, 0.0], [1.0, 0.0, 0.0]])
    line = written(group_line(1, group, kept, to_samples([group], [kept], [padded])))
    record = parse_group(line)
    assert [rollout.advantage for rollout in record.rollouts] == [(-1.0, -0.5), (1.0,)]
    assert [rollout.mean_advantage for rollout in record.rollouts] == [-0.75, 1.0]
    assert [entry["advantage"] for entry in line["rollouts"]] == [[-1.0, -0.5], [1.0]]


def test_a_line_says_which_weights_made_each_token() -> None:
    group = made.group("g", rollout(0.0, 2), rollout(1.0, 2, index=1, version=4, versions=(4, 5)))
    line = written(group_line(1, group, selection(group, ()), []))
    assert [rollout.version for rollout in parse_group(line).rollouts] == [0, (4, 5)]
    for entry in line["rollouts"]:
        del entry["version"]  # an older log
    assert [rollout.version for rollout in parse_group(line).rollouts] == [None, None]
    line["rollouts"][0]["version"] = ["4"]
    with pytest.raises(ValueError, match="version"):
        parse_group(line)


def test_rollouts_are_ordered_by_reward_and_those_without_come_last() -> None:
    group = parse_group(line_of([0.5, NAN, -1.0, 0.0, 1.0, NAN, 0.5]))
    assert [rollout.index for rollout in group.by_reward()] == [4, 0, 6, 3, 2, 1, 5]


def test_a_group_has_signal_where_kept_rewards_differ() -> None:
    assert not parse_group(line_of([0.0, 1.0])).is_zero_signal
    assert parse_group(line_of([1.0, 1.0])).is_zero_signal
    assert parse_group(line_of([])).is_zero_signal
    assert not parse_group(line_of([0.0, 0.5, 1.0])).is_zero_signal  # although one advantage is 0
    assert parse_group(line_of([0.0, 0.0, 1.0, 1.0], [0.0] * 4)).is_zero_signal  # two chunks of equal rewards
    dropped = group_of([1.0, 1.0, 0.0])
    kept = selection(dropped, (0, 1))
    assert parse_group(written(group_line(1, dropped, kept, samples_of(dropped, kept, [0.5, -0.5])))).is_zero_signal


def test_a_mean_advantage_is_the_advantage_where_there_is_one_per_rollout() -> None:
    record = parse_group(LINE)
    assert [rollout.mean_advantage for rollout in record.rollouts] == [0.75, -0.75, None, None]
    of_no_token = replace(record.rollouts[0], advantage=())
    assert of_no_token.mean_advantage == 0.0


def test_chat_messages_and_columns_are_written_as_they_are_and_messages_read_as_text() -> None:
    prompt = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "7+5?"})
    line = line_of([1.0], prompt=prompt, columns={"level": 2, "share": NAN, "tests": [Path("x"), {(1, 2): "a"}]})
    assert line["task"]["columns"] == {"level": 2, "share": None, "tests": ["x", {}]}
    assert tuple(line["task"]["prompt"]) == prompt
    assert parse_group(line).prompt == "system: Be brief.\nuser: 7+5?"
    line["task"]["prompt"] = ["7+5?"]
    with pytest.raises(ValueError, match=r"^task\.prompt = .*wanted text or chat messages"):
        parse_group(line)


def test_a_reward_that_is_nan_counts_as_none() -> None:
    line = line_of([1.0])
    line["rollouts"][0] |= {"reward": NAN, "parts": {"correct": None}}
    [found] = parse_group(line).rollouts
    assert (found.reward, found.parts) == (None, {"correct": None})


@each(
    "changes",
    [
        {"advantage": "high"},
        {"advantage": [0.5, "high"]},
        {"reward": True},
        {"reward": 1e300},
        {"parts": {"correct": "1"}},
        {"kept": None},
        {"index": 1.5},
        {"index": True},
        {"is_correct": "yes"},
        {"is_correct": 1},
        {"invalid_reason": 7},
        {"drop_reason": 7},
        {"finish_reason": 1},
        {"origin": 7},
    ],
)
def test_another_value_than_a_run_writes_is_refused(changes: dict[str, Any]) -> None:
    line = line_of([1.0])
    line["rollouts"][0] |= changes
    [option] = changes
    with pytest.raises(ValueError, match=f"^rollouts.0.{option} = "):
        parse_group(line)


@pytest.mark.parametrize("changes", [{"step": True}, {"step": "1"}, {"group": 3}], ids=str)
def test_a_group_is_named_by_a_text_and_its_step_is_a_whole_number(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(changes))} = "):
        parse_group(line_of([1.0]) | changes)


def test_an_advantage_per_token_that_is_null_counts_as_zero() -> None:
    line = line_of([1.0])
    line["rollouts"][0] |= {"advantage": [0.5, None]}
    assert parse_group(line).rollouts[0].advantage == (0.5, 0.0)


def test_half_a_surrogate_pair_is_read() -> None:
    line = line_of([1.0])
    line["rollouts"][0] |= {"text": "a\ud800", "parts": {"\ud800": 1.0}, "invalid_reason": "\ud800"}
    [rollout] = parse_group(line).rollouts
    assert (rollout.text, rollout.parts, rollout.invalid_reason) == ("a\ud800", {"\ud800": 1.0}, "\ud800")


def test_a_line_that_misses_a_field_is_no_group() -> None:
    line = line_of([1.0])
    del line["rollouts"][0]["advantage"]
    with pytest.raises(ValueError, match=r"^rollouts\.0\.advantage is missing"):
        parse_group(line)
