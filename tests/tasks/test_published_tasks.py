"""The known data sets: rows written by hand here, and all published ones where the folder in PODS_DATA is there."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.lib.boxed import boxed_answer
from podsrl.tasks import load_tasks
from podsrl.tasks.published import DATA_VARIABLE

Row = dict[str, Any]
WORDS = "Tom has 1,000 eggs.\nHe eats <<1000-1=999>>1, so 999 * 2 = <<999*2=1,998>>1998.\n"
GSM8K = [{"question": f" How many, {number}?", "answer": f"{WORDS}#### {number},000"} for number in range(1, 9)]
MATH_TRAIN = [
    {"problem": "Half?", "level": "Level 2", "type": "Algebra", "solution": r"It is $\boxed{\frac{1}{2}}$."},
    {"problem": "Five?", "level": "Level 5", "type": "Geometry", "solution": r"$\fbox{5}$"},
]
MATH_TEST = [
    {
        "problem": "Six?",
        "solution": r"$\boxed{6}$",
        "answer": "6",
        "subject": "Geometry",
        "level": 3,
        "unique_id": "test/geometry/1.json",
    }
]


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)


def write(folder: Path, **sides: list[Row]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for side, rows in sides.items():
        (folder / f"{side}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return folder


def test_a_gsm8k_row_becomes_a_question_with_its_number_and_solution_and_is_judged_as_math(tmp_path: Path) -> None:
    folder = write(tmp_path, train=GSM8K[:2], test=GSM8K[2:])
    tasks = load_tasks("gsm8k", path=str(folder), num_eval=0)
    assert [(task.id, task.answer) for task in tasks.train] == [("gsm8k/train/0", "1000"), ("gsm8k/train/1", "2000")]
    assert [task.id for task in tasks.eval] == [f"gsm8k/test/{place}" for place in range(6)]
    assert tasks.train[0].prompt == ({"role": "user", "content": "How many, 1?"},)
    assert dict(tasks.train[0].columns) == {
        "solution": "Tom has 1,000 eggs.\nHe eats 1, so 999 * 2 = 1998.\n#### 1,000"
    }
    assert dict(tasks.rewards) == {"math_correct": 1.0, "answer_format": 0.2}
    assert (tasks.name, tasks.correct, tasks.format) == ("gsm8k", "math_correct", "answer_format")
    assert load_tasks("gsm8k", path=str(folder), num_eval=1, chat=False).train[0].prompt == "How many, 1?\n"


@pytest.mark.parametrize("name", ["math", "math500"])
def test_math_rows_of_both_sides_have_the_same_columns(tmp_path: Path, name: str) -> None:
    tasks = load_tasks(name, path=str(write(tmp_path, train=MATH_TRAIN, test=MATH_TEST)), num_eval=0)
    assert [(task.id, task.answer) for task in (*tasks.train, *tasks.eval)] == [
        ("math/train/0", r"\frac{1}{2}"),
        ("math/train/1", "5"),
        ("math/test/0", "6"),
    ]
    columns = [{name: task.columns[name] for name in ("level", "type", "subject")} for task in tasks.train]
    assert columns[1] == {"level": "Level 5", "type": "Geometry", "subject": "Geometry"}
    assert tasks.train[1].columns["solution"] == r"$\fbox{5}$"
    assert dict(tasks.eval[0].columns) == {
        "solution": r"$\boxed{6}$",
        "level": "Level 3",
        "type": "Geometry",
        "subject": "Geometry",
        "unique_id": "test/geometry/1.json",
    }
    assert tasks.name == name


def test_svamp_rows_may_have_the_published_columns_or_two(tmp_path: Path) -> None:
    published = {"ID": "chal-1", "Body": "Tom has 3 eggs. ", "Question": "How many?", "Answer": "3.0", "Type": "Sum"}
    tasks = load_tasks(
        "svamp", path=str(write(tmp_path, train=[published], test=[{"question": "And 4?", "answer": 4.0}])), num_eval=0
    )
    assert tasks.train[0].prompt == ({"role": "user", "content": "Tom has 3 eggs. How many?"},)
    assert (tasks.train[0].answer, tasks.eval[0].answer, tasks.train[0].columns["Type"]) == ("3", "4", "Sum")


def test_the_folder_in_the_environment_is_used_where_no_path_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data" / "gsm8k", train=GSM8K[:2], test=GSM8K[2:])
    other = write(tmp_path / "other", train=GSM8K[:1], test=GSM8K[2:])
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    assert len(load_tasks("gsm8k", num_eval=1).train) == 2
    assert len(load_tasks("gsm8k", path=str(other), num_eval=1).train) == 1
    with pytest.raises(UsageError, match="cannot be loaded without a network"):  # no folder of it there: the hub
        load_tasks("svamp", num_eval=1)


def test_a_folder_in_the_environment_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"PODS_DATA = '.*none' \(environment variable\): no such folder"):
        load_tasks("gsm8k")


def test_without_a_network_three_cures_are_told_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(UsageError) as caught:
        load_tasks("math", num_eval=1)
    message = str(caught.value)
    assert message.startswith("task.name = 'math' (HuggingFaceH4/MATH-500/test on the hub): cannot be loaded without")
    for cure in ("load it once where there is one", "task.path to a folder with train.jsonl", "PODS_DATA to a folder"):
        assert cure in message
    assert "\n" not in message


def test_one_file_is_split_in_two(tmp_path: Path) -> None:
    folder = write(tmp_path, rows=GSM8K)
    tasks = load_tasks("gsm8k", path=str(folder / "rows.jsonl"), num_eval=3)
    assert sorted(task.id for task in (*tasks.train, *tasks.eval)) == [f"gsm8k/rows/{place}" for place in range(8)]
    assert len(tasks.eval) == 3
    with pytest.raises(UsageError, match="0 is for sets with a test split of their own"):
        load_tasks("gsm8k", path=str(folder / "rows.jsonl"), num_eval=0)


def test_a_folder_without_a_training_side_is_for_evaluation_only(tmp_path: Path) -> None:
    tasks = load_tasks("gsm8k", path=str(write(tmp_path, test=GSM8K)), num_eval=5)
    assert (len(tasks.train), len(tasks.eval)) == (0, 5)


def test_held_out_questions_are_never_trained_on(tmp_path: Path) -> None:
    tasks = load_tasks("gsm8k", path=str(write(tmp_path, train=GSM8K[:4], test=GSM8K[3:])), num_eval=1)
    assert [task.id for task in tasks.train] == ["gsm8k/train/0", "gsm8k/train/1", "gsm8k/train/2"]
    assert tasks.notes == ("1 of 4 training questions is also in the test split and is left out of training",)


def test_a_folder_without_a_test_side_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    folder = write(tmp_path, train=GSM8K, tests=GSM8K)
    with pytest.raises(UsageError, match=re.escape(f"'{folder}': no split 'test' there (wanted the file test.jsonl)")):
        load_tasks("gsm8k", path=str(folder))
    with pytest.raises(UsageError, match=r"Did you mean 'tests'\?"):
        load_tasks("gsm8k", path=str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"It holds no \.jsonl file"):
        load_tasks("gsm8k", path=str(tmp_path / "empty"))


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none': no such folder; wanted a folder or a \.jsonl file"):
        load_tasks("gsm8k", path=str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"none\.jsonl': no such file"):
        load_tasks("gsm8k", path=str(tmp_path / "none.jsonl"))


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, train=GSM8K, test=[])
    with pytest.raises(UsageError, match=re.escape(f"{folder}/test.jsonl: no rows")):
        load_tasks("gsm8k", path=str(folder))


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("gsm8k", {"question": "a", "answer": "So 7."}, "no reference answer of 'gsm8k' can be read there"),
        ("gsm8k", {"question": "a", "answer": "#### 1,2"}, "no reference answer of 'gsm8k' can be read there"),
        ("gsm8k", {"questoin": "a", "answer": "#### 1"}, "no column 'question'; columns there: 'questoin', 'answer'"),
        ("gsm8k", {"questoin": "a", "answer": "#### 1"}, "Did you mean 'questoin'?"),
        ("gsm8k", {"question": "", "answer": "#### 1"}, "column 'question' is \"\"; wanted text"),
        ("gsm8k", {"question": "a", "answer": 1}, "column 'answer' is 1; wanted text"),
        ("math", {"problem": "a", "solution": r"\boxed{5"}, "no reference answer of 'math' can be read there"),
        ("math", {"problem": "a", "solution": "b", "answer": None}, "column 'answer' is null; wanted text"),
        ("svamp", {"question": "a", "answer": "five"}, "no reference answer of 'svamp' can be read there"),
        ("svamp", {"Body": "a", "Question": "b"}, "no column 'Answer'; columns there: 'Body', 'Question'."),
    ],
)
def test_a_bad_row_is_named_by_set_file_and_line(tmp_path: Path, name: str, row: Row, message: str) -> None:
    good = {"gsm8k": GSM8K[0], "math": MATH_TRAIN[0], "svamp": {"question": "a", "answer": 1}}[name]
    folder = write(tmp_path, test=[good, row])
    with pytest.raises(UsageError, match=re.escape(f"{folder}/test.jsonl:2: ") + ".*" + re.escape(message)):
        load_tasks(name, path=str(folder))


# --- all published rows ---


@pytest.fixture
def published(no_data_folder: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    if DATA is None:
        pytest.skip("PODS_DATA is not set: a folder with gsm8k/, math/ and svamp/ as JSON lines")
    monkeypatch.setenv(DATA_VARIABLE, DATA)
    return Path(DATA)


DATA = os.environ.get(DATA_VARIABLE)


def raw(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("name", "num_train", "num_eval"), [("gsm8k", 7473, 1319), ("math", 4500, 500), ("svamp", 0, 1000)]
)
def test_every_published_row_loads_under_its_own_id(published: Path, name: str, num_train: int, num_eval: int) -> None:
    tasks = load_tasks(name, num_eval=0)
    everything = [*tasks.train, *tasks.eval]
    assert (len(tasks.train), len(tasks.eval), tasks.notes) == (num_train, num_eval, ())
    assert len({task.id for task in everything}) == len(everything)
    assert all(task.answer == task.answer.strip() != "" for task in everything)


def test_every_gsm8k_answer_is_the_published_number(published: Path) -> None:
    tasks = load_tasks("gsm8k", num_eval=0)
    for side, split in ((tasks.train, "train"), (tasks.eval, "test")):
        rows = raw(published / "gsm8k" / f"{split}.jsonl")
        for task, row in zip(side, rows, strict=True):
            assert float(task.answer) == float(row["answer"].split("####")[1].replace(",", ""))
            assert not {",", "$", "#", "<"} & set(task.answer)
            assert "<<" not in task.columns["solution"]


def test_every_math_answer_has_balanced_braces_and_stands_in_a_box(published: Path) -> None:
    tasks = load_tasks("math", num_eval=0)
    for task in (*tasks.train, *tasks.eval):
        plain = re.sub(r"\\.", "", task.answer)
        assert plain.count("{") == plain.count("}")
        answer, solution = ("".join(text.split()) for text in (task.answer, task.columns["solution"]))
        assert f"\\boxed{{{answer}}}" in solution or f"\\fbox{{{answer}}}" in solution


def test_the_boxes_of_math_500_hold_its_own_answers(published: Path) -> None:
    for task in load_tasks("math500", num_eval=0).eval:
        assert boxed_answer(task.columns["solution"]) == task.answer


def test_every_svamp_answer_is_the_published_number(published: Path) -> None:
    rows = raw(published / "svamp" / "test.jsonl")
    for task, row in zip(load_tasks("svamp", num_eval=0).eval, rows, strict=True):
        assert task.answer == str(int(row["answer"]))
