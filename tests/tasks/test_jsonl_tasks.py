import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.tasks import jsonl
from podsrl.tasks.base import TaskSet
from podsrl.tasks.jsonl import load_jsonl
from podsrl.types import Task

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_rows(*rows: Any) -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return write_rows


def load(path: Path, *, num_eval: int | None = 1, seed: int = 0, **options: Any) -> TaskSet:
    names = {"prompt_column": "question", "answer_column": "answer"} | options
    return load_jsonl(path, num_eval=num_eval, seed=seed, **names)


def all_tasks(tasks: TaskSet) -> dict[str, Task]:
    return {task.id: task for task in [*tasks.train, *tasks.eval]}


def rows(count: int) -> list[dict[str, str]]:
    return [{"question": f"question {number}", "answer": str(number)} for number in range(count)]


def test_a_row_becomes_a_task_with_its_other_columns(write: Write) -> None:
    path = write({"question": "1+2=", "answer": "3", "level": 4, "tags": ["easy"]}, *rows(1))
    task = all_tasks(load(path))["line-1"]
    assert (task.prompt, task.answer, dict(task.columns)) == ("1+2=", "3", {"level": 4, "tags": ["easy"]})


def test_a_column_that_only_some_rows_have_is_none_in_the_others(write: Write) -> None:
    tasks = all_tasks(load(write({"question": "a", "answer": "1", "level": 4}, {"question": "b", "answer": "2"})))
    assert [dict(tasks[name].columns) for name in ("line-1", "line-2")] == [{"level": 4}, {"level": None}]


def test_an_answer_under_another_name_stays_among_the_columns(write: Write) -> None:
    path = write({"q": "a", "solution": "1", "answer": "long"}, {"q": "b", "solution": "2", "answer": "longer"})
    task = all_tasks(load(path, prompt_column="q", answer_column="solution"))["line-1"]
    assert (task.answer, dict(task.columns)) == ("1", {"solution": "1", "answer": "long"})


def test_ids_come_from_the_id_column_or_the_line(write: Write) -> None:
    path = write({"question": "a", "answer": "1", "id": "x"}, "", {"question": "b", "answer": "2", "id": 7}, *rows(1))
    assert all_tasks(load(path)).keys() == {"x", "7", "line-4"}


def test_chat_messages_are_a_prompt(write: Write) -> None:
    chat = [{"role": "system", "content": ""}, {"role": "user", "content": "1+2="}]
    task = all_tasks(load(write({"question": chat, "answer": "3"}, *rows(1))))["line-1"]
    assert task.prompt == tuple(chat)


@pytest.mark.parametrize(("answer", "text"), [(3, "3"), (-2.5, "-2.5"), (0, "0"), (" x ", " x ")])
def test_an_answer_becomes_text(write: Write, answer: object, text: str) -> None:
    assert all_tasks(load(write({"question": "a", "answer": answer}, *rows(1))))["line-1"].answer == text


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"question": "a\xe2\x80\xa8b", "answer": 1}\r\n\r\n{"question": "c", "answer": 2}\r\n'
    )
    assert {task.prompt for task in all_tasks(load(path)).values()} == {"a\u2028b", "c"}


def test_each_row_is_held_out_about_equally_often(write: Write) -> None:
    path = write(*rows(4))
    held_out = [load(path, seed=seed).eval[0].id for seed in range(400)]
    # Binomial(400, 1/4): mean 100, standard deviation 8.7; five of them.
    assert all(57 <= held_out.count(f"line-{line}") <= 143 for line in range(1, 5))


def test_a_prompt_that_several_rows_share_is_never_held_out(write: Write) -> None:
    chat = [{"role": "user", "content": "twice"}]
    shared = [{"question": prompt, "answer": str(number)} for prompt in ("twice", chat) for number in range(2)]
    path = write(*shared, *rows(2))
    for seed in range(20):
        assert {task.id for task in load(path, num_eval=2, seed=seed).eval} == {"line-5", "line-6"}
    with pytest.raises(UsageError, match=r"has 6 rows, 4 of them with a prompt that another row shares; .*1 \.\. 2"):
        load(path, num_eval=3)


@pytest.mark.parametrize("num_eval", [0, -1, 3, 4])
def test_num_eval_must_leave_a_row_for_training(write: Write, num_eval: int) -> None:
    with pytest.raises(UsageError, match=rf"task.num_eval = {num_eval}: .* has 3 rows; .* choose 1 \.\. 2"):
        load(write(*rows(3)), num_eval=num_eval)


GOOD = '{"question": "a", "answer": "1"}'


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{oops}", "not JSON: Expecting property name"),
        ('{"question": "b", "answer": NaN}', "not JSON: NaN is not a JSON number"),
        ('{"question": "b", "answer": 1, "answer": 2}', "not JSON: the key 'answer' stands there 2 times"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "[1, 2]; wanted a JSON object {...}"),
        ("null", "null; wanted a JSON object {...}"),
        ('{"qestion": "b", "a": 1}', "(task.prompt_column); columns there: 'qestion', 'a'. Did you mean 'qestion'?"),
        ('{"question": "b", "zzz": 1}', "no column 'answer' (task.answer_column); columns there: 'question', 'zzz'."),
        ('{"prompt": "a", "solution": 1}', "'prompt', 'solution'. Set task.prompt_column to one of them."),
        ("{}", "no column 'question' (task.prompt_column); columns there: none."),
        ('{"question": " ", "answer": 1}', "'question' (task.prompt_column) is an empty prompt; wanted a question"),
        ('{"question": [], "answer": 1}', "is an empty prompt: a list without messages"),
        ('{"question": [{"role": "user", "content": " "}], "answer": 1}', "empty prompt: no message has any content"),
        ('{"question": 5, "answer": 1}', "is 5; wanted text or a list of chat messages"),
        ('{"question": null, "answer": 1}', "is null; wanted text or a list of chat messages"),
        ('{"question": ["hi"], "answer": 1}', 'has the message "hi"; wanted {"role": text, "content": text}'),
        ('{"question": [{"role": "user"}], "answer": 1}', 'has the message {"role": "user"}; wanted'),
        ('{"question": [{"role": "user", "content": 3}], "answer": 1}', "wanted {\"role\": text, \"content\": text}"),
        ('{"question": "b", "answer": null}', "column 'answer' (task.answer_column) is null; wanted text or a number"),
        ('{"question": "b", "answer": true}', "is true; wanted text or a number"),
        ('{"question": "b", "answer": ["1"]}', 'is ["1"]; wanted text or a number'),
        (json.dumps({"question": "b", "answer": ["x" * 500]}), f'is ["{"x" * 55}...; wanted'),
        ('{"question": "b", "answer": ""}', 'is ""; wanted text or a number'),
        ('{"question": "b", "answer": 1e999}', "is Infinity; wanted text or a number"),
        ('{"question": "b", "answer": 1, "id": 1.5}', "column 'id' is 1.5; wanted text or a whole number"),
        ('{"question": "b", "answer": 1, "id": true}', "column 'id' is true; wanted text or a whole number"),
        ('{"question": "b", "answer": 1, "id": " "}', "column 'id' is \" \"; wanted text or a whole number"),
        ('{"question": "b", "answer": 1, "id": "line-1"}', "the id 'line-1' is taken by line 1; make ids unique"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_file_and_line(write: Write, bad: str, message: str) -> None:
    path = write(GOOD, "", bad, '{"question": "z", "answer": 26}')
    with pytest.raises(UsageError, match=re.escape(f"{path}:3: ") + ".*" + re.escape(message)):
        load(path)


def test_a_file_that_is_not_utf_8_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(GOOD.encode() + b'\n{"question": "\xff", "answer": 1}\n')
    with pytest.raises(UsageError, match=re.escape(f"{path}:2: not UTF-8: invalid start byte at byte 14")):
        load(path)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=re.escape(f"{path}: no rows (task.path)")):
        load(path)


def test_a_missing_file_is_named_with_the_place_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(f"'none.jsonl': no such file (looked for {tmp_path}/none.jsonl)")):
        load(Path("none.jsonl"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"task.path = .*: cannot be read: Is a directory; wanted a file"):
        load(tmp_path)


def test_prompt_and_answer_need_two_columns(write: Write) -> None:
    with pytest.raises(UsageError, match=r"task.prompt_column and task.answer_column are both 'answer'"):
        load(write(*rows(3)), prompt_column="answer")


def test_a_negative_seed_is_refused(write: Write) -> None:
    with pytest.raises(UsageError, match="seed = -1; wanted at least 0"):
        load(write(*rows(3)), seed=-1)


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    """Question 3 of `rows` and five others."""
    path = tmp_path / "held.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows(9)[3:4] + rows(25)[20:]))
    return path


def test_a_second_file_is_held_out_whole_and_not_trained_on(write: Write, held_out: Path) -> None:
    tasks = load(write(*rows(10)), num_eval=None, eval_path=held_out)
    assert [task.prompt for task in tasks.train] == [f"question {n}" for n in range(10) if n != 3]
    assert [task.prompt for task in tasks.eval] == [f"question {n}" for n in (3, 20, 21, 22, 23, 24)]
    assert [task.id for task in tasks.eval][:2] == ["eval-line-1", "eval-line-2"]
    [note] = tasks.notes
    assert note.startswith("1 of 10 training questions is also in") and str(held_out) in note
    assert load(write(*rows(10)), num_eval=0, eval_path=held_out).eval == tasks.eval


def test_of_a_second_file_a_number_may_be_taken(write: Write, held_out: Path) -> None:
    path = write(*rows(10))
    taken = [{task.id for task in load(path, num_eval=count, eval_path=held_out).eval} for count in (2, 4)]
    assert [len(ids) for ids in taken] == [2, 4] and taken[0] < taken[1]
    assert len(load(path, num_eval=2, eval_path=held_out).train) == 9  # what is not asked is not trained on either
    with pytest.raises(UsageError, match=r"task.num_eval = 7: .*has 6 rows"):
        load(path, num_eval=7, eval_path=held_out)


def test_both_files_have_the_same_columns(write: Write, tmp_path: Path) -> None:
    (tmp_path / "held.jsonl").write_text('{"question": "a", "answer": 1, "level": 4}\n')
    tasks = load(write({"question": "b", "answer": 2, "source": "c"}), eval_path=tmp_path / "held.jsonl")
    assert [dict(task.columns) for task in (*tasks.train, *tasks.eval)] == [
        {"source": "c", "level": None},
        {"source": None, "level": 4},
    ]


def test_a_second_file_that_is_the_first_or_missing_or_holds_all_is_refused(
    write: Write, held_out: Path, tmp_path: Path
) -> None:
    path = write(*rows(10))
    with pytest.raises(UsageError, match=r"task.path and task.eval_path are both"):
        load(path, eval_path=path.parent / "." / path.name)
    with pytest.raises(UsageError, match=r"task.eval_path = '.*lost.jsonl': no such file"):
        load(path, eval_path=tmp_path / "lost.jsonl")
    with pytest.raises(UsageError, match=r"every question there is also in task.eval_path"):
        load(write(rows(9)[3]), eval_path=held_out)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"no rows \(task.eval_path\)"):
        load(path, eval_path=tmp_path / "empty.jsonl")


@pytest.mark.parametrize(
    ("line", "cure"),
    [('{"question": "' + "x" * 90 + '"}', "shorten it"), ('[{"question": "' + "x" * 90, "looks like one list")],
)
def test_a_line_without_end_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, cure: str
) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 64)
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"question": "1+2=", "answer": 3}}\n{line}')
    with pytest.raises(UsageError, match=rf"rows.jsonl:2: the line has more than 64 bytes \(task.path\).*{cure}"):
        jsonl.read_rows(path)


@pytest.mark.parametrize("text", ["", "a", "a\n", "\n\na", "\xef\xbb\xbfa\nb\r\n"])
def test_lines_are_those_between_line_breaks(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text.encode("latin-1"))
    assert jsonl.read_lines(path, "FILE") == text.encode("latin-1").removeprefix(b"\xef\xbb\xbf").split(b"\n")
