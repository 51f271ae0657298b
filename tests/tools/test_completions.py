"""The file of stored completions: what is written is read back, whatever stands in it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.score.base import Rows
from podsrl.score.forms import BatchForm
from podsrl.tools.completions import Stored, check_out, completions_writer, read_completions, stored_group
from podsrl.types import Group, Rollout, Task

NAMES = {
    *("id", "prompt", "completion", "answer", "extracted", "reward", "is_correct", "is_formatted", "invalid_reason"),
    *("sample", "num_tokens", "finish_reason"),
}
CHAT = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "9*2?"})


def stored(text: str = "It is 18.", **changes: Any) -> Stored:
    task = Task(id="a", prompt="9*2?", answer="18", columns={"level": 2, "tags": ["easy"]})
    facts: dict[str, Any] = {"sample": 1, "extracted": "18", "reward": 1.1, "is_correct": True, "is_formatted": False}
    return Stored(**{"task": task, "text": text, **facts, "num_tokens": 7, "finish_reason": "stop", **changes})


def round_trip(path: Path, *rows: Stored) -> list[Stored]:
    with completions_writer(path) as write:
        write(rows)
    return read_completions(path)


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_completion_comes_back_with_all_that_is_known_about_it(tmp_path: Path) -> None:
    one = stored()
    assert one.to_json().keys() == {*NAMES, "level", "tags"}
    [back] = round_trip(tmp_path / "a.jsonl", one)
    assert back == stored(where=f"{tmp_path}/a.jsonl:1", label=True)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "a\0b", "two\nlines\u2028and \x85more", "", "\ufeff", "𝄞 ½ ೪"])
def test_odd_characters_come_back(tmp_path: Path, text: str) -> None:
    of_data = re.sub(r"[\ud800-\udfff\0]", "", text)  # which a data set may not hold, though a completion may
    task = Task(id="a", prompt=f"{of_data}?", answer=f"{of_data}.", columns={"note": text})
    [back] = round_trip(tmp_path / "a.jsonl", Stored(task=task, text=text))
    assert (back.text, back.task.prompt, back.task.answer) == (text, f"{of_data}?", f"{of_data}.")
    assert back.task.columns["note"] == text


def test_chat_messages_come_back(tmp_path: Path) -> None:
    [back] = round_trip(tmp_path / "a.jsonl", stored(task=Task(id="a", prompt=CHAT, answer="18")))
    assert back.task.prompt == CHAT


def test_columns_with_the_names_of_the_record_come_back_to_the_data_set(tmp_path: Path) -> None:
    """A reward of TRL's form is given the same columns as in the run."""
    columns = {
        "id": 7,
        "answer": "9*2 = 18",
        "reward": 0.5,
        "completion": "x",
        "columns": [1],
        "label": None,
        "level": 2,
    }
    task = Task(id="7", prompt="9*2?", answer="18", columns=columns)
    [back] = round_trip(tmp_path / "a.jsonl", stored(task=task))
    assert dict(back.task.columns) == columns and (back.task.id, back.task.answer, back.reward) == ("7", "18", 1.1)
    seen: list[Any] = []

    def reward(completions: list[str], answer: list[str], id: list[int], level: list[int]) -> list[float]:
        seen.append((answer, id, level))
        return [0.0] * len(completions)

    from inspect import signature

    for one in (task, back.task):
        BatchForm("reward", reward, signature(reward))(Rows(tasks=[one], texts=["x"], token_ids=[()]))
    assert seen == [(["9*2 = 18"], [7], [2])] * 2


def test_what_json_cannot_hold_becomes_text_or_null(tmp_path: Path) -> None:
    task = Task(id="a", prompt="?", answer="18", columns={"where": Path("x/y"), "share": math.nan})
    [back] = round_trip(tmp_path / "a.jsonl", stored(task=task))
    assert dict(back.task.columns) == {"where": "x/y", "share": None}


def test_a_judged_group_becomes_one_record_for_each_completion() -> None:
    task = Task(id="a", prompt="9*2?", answer="18")
    rollouts = tuple(
        Rollout(
            group_id="r",
            index=i,
            token_ids=(1,) * 3,
            logprobs=(),
            version=0,
            finish_reason="length",
            text=f"text {i}",
            reward=math.nan if i else 1.0,
            parts={},
            is_correct=not i,
            is_formatted=True,
            answer="18",
            invalid_reason="it raised" if i else None,
        )
        for i in range(2)
    )
    found = stored_group(Group(id="r", task=task, prompt_ids=(1,), rollouts=rollouts))
    assert [(one.sample, one.text, one.reward, one.invalid_reason) for one in found] == [
        (0, "text 0", 1.0, None),
        (1, "text 1", None, "it raised"),
    ]
    assert [(one.extracted, one.num_tokens, one.finish_reason) for one in found] == [("18", 3, "length")] * 2


def test_the_label_goes_before_the_verdict_of_that_time_and_an_invalid_one_has_none(tmp_path: Path) -> None:
    row = {"prompt": "?", "completion": "x", "answer": 1}
    path = write(
        tmp_path / "a.jsonl",
        {**row, "is_correct": True},
        {**row, "is_correct": True, "label": 0},
        {**row, "is_correct": False, "invalid_reason": "it raised"},
        row,
    )
    assert [one.label for one in read_completions(path)] == [True, False, None, None]


def test_a_half_written_last_line_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    round_trip(path, stored("one"), stored("two"))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.warns(UserWarning, match=r"a\.jsonl:2: half written"):
        assert [one.text for one in read_completions(path)] == ["one"]
    path.write_bytes(path.read_bytes()[:40])
    with pytest.warns(UserWarning), pytest.raises(UsageError, match="no completions"):
        read_completions(path)


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{json.dumps(stored().to_json())}\n\n{{"prompt": \n{json.dumps(stored().to_json())}\n')
    with pytest.raises(UsageError, match=r"""a\.jsonl:3: '{"prompt": ' is no whole JSON object"""):
        read_completions(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": "high"}, "column 'reward' is \"high\"; wanted a number, or null"),
        ({"reward": True}, "column 'reward' is true; wanted a number, or null"),
        ({"is_correct": "yes"}, "column 'is_correct' is \"yes\"; wanted true or false, 1 or 0, or null"),
        ({"sample": 0.5}, "column 'sample' is 0.5; wanted a whole number, or null"),
        ({"extracted": 18}, "column 'extracted' is 18; wanted text, or null"),
        ({"columns": 3}, "column 'columns' is 3; wanted an object: name -> value"),
        ({"completion": None}, "column 'completion' is null; wanted text"),
        ({"prompt": ["9*2?"]}, 'has the message "9*2?"'),
    ],
)
def test_a_column_that_holds_something_else_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "a.jsonl", {**stored().to_json(), **change})
    with pytest.raises(UsageError) as error:
        read_completions(path)
    assert f"{path}:1: " in str(error.value) and message in str(error.value)


@pytest.mark.parametrize(("name", "cause"), [("", "cannot be read"), ("none.jsonl", "no such file")])
def test_a_path_that_is_no_file_is_named(tmp_path: Path, name: str, cause: str) -> None:
    with pytest.raises(UsageError, match=cause):
        read_completions(tmp_path / name)


def test_a_file_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    check_out(None)
    check_out(tmp_path / "new.jsonl")
    (tmp_path / "old.jsonl").touch()
    check_out(tmp_path / "old.jsonl", is_forced=True)
    with pytest.raises(UsageError, match=r"--out .*old\.jsonl: .*--force"):
        check_out(tmp_path / "old.jsonl")
    for path in (tmp_path, tmp_path / "nowhere" / "a.jsonl"):
        with pytest.raises(UsageError, match=r"--out .*: wanted a file in a folder that is there"):
            check_out(path)


@pytest.mark.parametrize("name", ["reward", "sample", "num_tokens"])
def test_a_number_beyond_all_bounds_is_told(tmp_path: Path, name: str) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text(f'{{"prompt": "a", "completion": "b", "answer": "c", "{name}": {"9" * 400}}}\n')
    with pytest.raises(UsageError, match=rf"c.jsonl:1: column '{name}' is 9+\.\.\.; wanted .* below 2\^63"):
        read_completions(file)
