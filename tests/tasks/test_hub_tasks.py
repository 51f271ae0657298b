"""Any data set with named columns. What the hub would give is written to disk here, in a form that `datasets` reads."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.tasks import load_tasks

Row = dict[str, Any]
ROWS = [{"question": f"{number}+1=", "answer": number + 1, "level": number % 3} for number in range(6)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two subsets as Parquet: "easy" with two splits, "hard" with one of no rows."""
    from datasets import Dataset, Features, Value

    (tmp_path / "sums").mkdir()
    empty = Dataset.from_dict({"question": []}, features=Features({"question": Value("string")}))
    for name, data in (
        ("train", Dataset.from_list(ROWS[:4])),
        ("test", Dataset.from_list(ROWS[3:])),
        ("none", empty),
    ):
        data.to_parquet(tmp_path / "sums" / f"{name}.parquet")
    (tmp_path / "sums" / "README.md").write_text(
        "---\nconfigs:\n- config_name: easy\n  data_files:\n  - {split: train, path: train.parquet}\n"
        "  - {split: test, path: test.parquet}\n- config_name: hard\n  data_files:\n"
        "  - {split: train, path: none.parquet}\n---\n"
    )
    return tmp_path / "sums"


def load(folder: Path, **options: Any) -> Any:
    return load_tasks("hub", path=str(folder), **{"subset": "easy", "num_eval": 1, **options})


def test_both_splits_become_tasks(folder: Path) -> None:
    tasks = load(folder, eval_split="test", num_eval=0)
    assert [(task.id, task.prompt, task.answer, dict(task.columns)) for task in tasks.train] == [
        (f"sums/train/{number}", f"{number}+1=", str(number + 1), {"level": number % 3}) for number in range(3)
    ]
    assert [task.id for task in tasks.eval] == ["sums/test/0", "sums/test/1", "sums/test/2"]
    assert tasks.notes == ("1 of 4 training questions is also in the test split and is left out of training",)
    assert (dict(tasks.rewards), tasks.chat) == ({"correct": 1.0, "format": 0.1}, False)


def test_without_a_test_split_rows_are_held_out(folder: Path) -> None:
    tasks = load(folder, num_eval=2)
    assert (len(tasks.train), len(tasks.eval)) == (2, 2)
    with pytest.raises(UsageError, match=r"the split 'train' of '.*sums/easy' has 4 rows.*choose 1 \.\. 3"):
        load(folder, num_eval=0)


def test_a_slice_of_a_split_can_be_named(folder: Path) -> None:
    tasks = load(folder, train_split="train[1:3]", eval_split="test[1:]", num_eval=0)
    assert [task.id for task in tasks.train] == ["sums/train[1:3]/0", "sums/train[1:3]/1"]
    assert [task.prompt for task in tasks.eval] == ["4+1=", "5+1="]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"train_split": "trian"},
            "Unknown split \"trian\". Should be one of ['train', 'test']. Did you mean 'train'?",
        ),
        ({"eval_split": "validation"}, "Unknown split \"validation\". Should be one of ['train', 'test']."),
        ({"subset": "eazy"}, "BuilderConfig 'eazy' not found. Available: ['easy', 'hard'] Did you mean 'easy'?"),
        ({"subset": None}, "Config name is missing. Please pick one among the available configs: ['easy', 'hard']"),
        ({"subset": "hard"}, "split 'train' has no rows; choose another one"),
    ],
)
def test_a_missing_split_or_subset_is_told_in_one_line(folder: Path, options: Row, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"task.path = '{folder}': ") + re.escape(message)) as caught:
        load(folder, **options)
    assert "\n" not in str(caught.value)


def test_a_bad_column_is_named_with_the_row(folder: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{folder}/train row 0: ") + ".*no column 'questions'"):
        load(folder, prompt_column="questions")


def test_one_split_for_both_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"task.train_split and task.eval_split are both 'train'"):
        load(folder, eval_split="train")


def test_messages_in_a_column_are_asked_as_they_are(tmp_path: Path) -> None:
    from datasets import Dataset

    chats = [{"q": [{"role": "user", "content": f"{number}+1="}], "answer": number + 1} for number in range(3)]
    Dataset.from_list(chats).to_parquet(tmp_path / "train.parquet")
    tasks = load(tmp_path, subset=None, prompt_column="q", system_prompt="Be brief.")
    assert {task.prompt[0]["content"] for task in (*tasks.train, *tasks.eval)} == {"Be brief."}
    assert {task.prompt[1]["content"] for task in (*tasks.train, *tasks.eval)} == {"0+1=", "1+1=", "2+1="}


def test_json_lines_stand_in_for_a_hub_name(tmp_path: Path) -> None:
    for split, rows in (("train", ROWS[:4]), ("held", ROWS[4:])):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tasks = load(tmp_path, subset=None, eval_split="held", num_eval=0)
    assert [task.id for task in tasks.eval] == [f"{tmp_path.name}/held/0", f"{tmp_path.name}/held/1"]
    with pytest.raises(UsageError, match=r"'heldd' there \(wanted the file heldd.jsonl\). Did you mean 'held'\?"):
        load(tmp_path, subset=None, eval_split="heldd")
    with pytest.raises(UsageError, match=r"task.subset = 'easy', but the folder task.path"):
        load(tmp_path)
    with pytest.raises(UsageError, match=r"task.path = '.*train.jsonl' is a file.*set task.name = 'jsonl'"):
        load(tmp_path / "train.jsonl", subset=None)


def test_without_a_network_the_cures_are_told() -> None:
    with pytest.raises(UsageError, match=r"'no/such': cannot be loaded without a network .*task.name = 'jsonl'"):
        load_tasks("hub", path="no/such")


def test_a_folder_that_nothing_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readme.bin").write_bytes(b"\x00")
    with pytest.raises(UsageError, match=r"task.path = '.*': cannot be loaded: "):
        load(tmp_path, subset=None)
