"""Half a surrogate pair or a NUL character in a data set is an error of its line, and not of the run an hour later."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.tasks import TaskSet, load_tasks
from podsrl.tasks.chat import ask
from podsrl.tasks.rows import row_task, shown, text_column
from podsrl.types import Task

HALF, NUL = "a\ud800b", "a\0b"
GOOD = [{"question": f"{i}+1=", "answer": i + 1} for i in range(4)]


def load(folder: Path, *rows: Any, **options: Any) -> TaskSet:
    file = folder / "rows.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in (*GOOD, *rows)))
    return load_tasks("jsonl", path=str(file), num_eval=1, **options)


BAD = [
    ({"question": HALF, "answer": 1}, '"question"'),
    ({"question": "x", "answer": "\udfff"}, '"answer"'),
    ({"question": [{"role": "user", "content": HALF}], "answer": 1}, '"question"'),
    ({"question": "x", "answer": 1, "note": {"deep": [HALF]}}, '"note"'),
    ({"question": "x", "answer": 1, HALF: 1}, r'"a\ud800b"'),
    ({"question": "x", "answer": 1, "id": HALF}, '"id"'),
    ({"question": NUL, "answer": 1}, "'question' (task.prompt_column) holds a NUL character at place 2"),
    ({"question": [{"role": "user", "content": NUL}], "answer": 1}, "NUL character"),
    ({"question": "x", "answer": NUL}, "'answer' (task.answer_column) holds a NUL character"),
]


@pytest.mark.parametrize(("row", "named"), BAD)
def test_a_row_is_named_by_its_line(tmp_path: Path, row: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=re.escape("rows.jsonl:5: column ")) as caught:
        load(tmp_path, row)
    assert named in str(caught.value)
    str(caught.value).encode()  # it can be printed


def test_whole_pairs_and_other_characters_pass(tmp_path: Path) -> None:
    odd = "😀 \U00100000 \ue000 \x01 \x7f é \ufeff"
    assert odd in {
        task.prompt for task in load(tmp_path, {"question": odd, "answer": 1}, {"question": "b", "answer": 2}).train
    }
    (tmp_path / "rows.jsonl").write_text(
        "\n".join(['{"question": "\\ud83d\\ude00", "answer": 1}', *map(json.dumps, GOOD)])
    )
    both = load_tasks("jsonl", path=str(tmp_path / "rows.jsonl"), num_eval=1)
    assert "😀" in {task.prompt for task in (*both.train, *both.eval)}


def test_a_column_that_only_rewards_read_may_hold_a_nul(tmp_path: Path) -> None:
    assert load(tmp_path, {"question": "x", "answer": 1, "note": NUL}).train


@pytest.mark.parametrize("bad", [HALF, NUL])
def test_rows_of_every_source_are_looked_at(tmp_path: Path, bad: str) -> None:
    row = {"question": bad, "answer": 1}
    with pytest.raises(UsageError, match="set/train row 7: column 'question'"):
        row_task(
            "set/train row 7", row, id="x", names=dict.fromkeys(row), prompt_column="question", answer_column="answer"
        )
    with pytest.raises(UsageError, match="here: column 'question'"):
        text_column("here", row, "question")
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"question": bad, "answer": "#### 1"}))
    for name in ("hub", "gsm8k"):
        with pytest.raises(UsageError, match=r"t\w+\.jsonl:1: column .question"):
            load_tasks(name, path=str(tmp_path), num_eval=1)


@pytest.mark.parametrize("bad", [HALF, NUL])
def test_so_are_tasks_of_a_loader_of_ones_own_and_the_system_prompt(bad: str) -> None:
    good = Task(id="good", prompt="7", answer="1")
    for task in (
        Task(id="mine", prompt=bad, answer="1"),
        Task(id="mine", prompt="7", answer=bad),
        Task(id="mine", prompt=({"role": "user", "content": bad},), answer="1"),
    ):
        with pytest.raises(UsageError, match="of task 'mine' holds"):
            ask(TaskSet(name="own", train=(task,), eval=(good,)))
    with pytest.raises(UsageError, match=r"task\.system_prompt holds"):
        ask(TaskSet(name="own", train=(good,), eval=(good,), chat=True), system_prompt=bad)


def test_a_value_in_a_message_can_always_be_printed() -> None:
    shown([HALF]).encode()
