"""Known data sets: where their rows come from, and how they become a `TaskSet`.

Goes in: a `Published`, which says what a set is called in each place and how one row is read. Comes out: a `TaskSet`
that is asked in chat messages and judged by the math rewards. A set's own test split is held out; its training split is
never evaluated on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podsrl.errors import UsageError
from podsrl.tasks.base import TaskSet
from podsrl.tasks.hub import FILE_ENDING, folder_rows, hub_rows
from podsrl.tasks.jsonl import read_rows
from podsrl.tasks.rows import Row
from podsrl.tasks.split import hold_out, take_eval, without_held_out
from podsrl.types import Task

DATA_VARIABLE = "PODS_DATA"
"""Environment variable: a folder that has a folder with train.jsonl and test.jsonl for each set (gsm8k/, math/ …)."""
REWARDS = {"math_correct": 1.0, "answer_format": 0.2}

HubSplit = tuple[str, str | None, str]
"""A data set's name on the hub, its subset, its split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What one published row says."""

    question: str
    answer: str | None
    """The reference answer; None where none could be found."""
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One known data set."""

    name: str
    folder: str
    """Below the folder in `PODS_DATA`; also how the tasks' ids begin."""
    train: tuple[HubSplit, ...]
    test: tuple[HubSplit, ...]
    read: Callable[[str, Row], Problem]
    """From where a row stands, for messages, and the row."""


def load_published(published: Published, *, path: str | None, num_eval: int | None, seed: int) -> TaskSet:
    """Load a known set: from `path`, else from the folder in `PODS_DATA`, else from the hub.

    Args:
        published: which one.
        path: a folder with train.jsonl and test.jsonl, or one .jsonl file, of which `num_eval` rows are then held out.
            A folder without train.jsonl is for evaluation only.
        num_eval: the first so many of a fixed shuffle of the test split; 0: all of it; None: see `take_eval`, and for
            one file `hold_out`.
        seed: of that shuffle.

    Raises:
        UsageError: the rows cannot be found or read, a question or an answer is missing, `num_eval` does not fit.
    """
    file = Path(path).expanduser() if path is not None else None
    if file is not None and not file.is_dir():
        return _one_file(published, file, num_eval, seed)
    folder = file if file is not None else _data_folder(published.folder)
    where = "the hub" if folder is None else str(folder)
    test = _tasks(published, "test", _rows(published, folder, "test"))
    train, notes = without_held_out(_tasks(published, "train", _rows(published, folder, "train")), test)
    held_out = take_eval(f"the test split of '{published.name}' ({where})", test, num_eval, seed)
    return _task_set(published, train, held_out, notes)


def _task_set(
    published: Published, train: tuple[Task, ...], held_out: tuple[Task, ...], notes: tuple[str, ...]
) -> TaskSet:
    return TaskSet(
        name=published.name,
        train=train,
        eval=held_out,
        rewards=REWARDS,
        correct="math_correct",
        format="answer_format",
        chat=True,
        notes=notes,
    )


def _one_file(published: Published, file: Path, num_eval: int | None, seed: int) -> TaskSet:
    if file.suffix != FILE_ENDING:
        raise UsageError(f"task.path = '{file}': no such folder; wanted a folder or a {FILE_ENDING} file")
    rows = [(f"{file}:{line}", row) for line, row in read_rows(file)]
    train, held_out = hold_out(file, _tasks(published, file.stem, rows), num_eval, seed)
    return _task_set(published, train, held_out, ())


def _data_folder(name: str) -> Path | None:
    """The set's folder in `PODS_DATA`, where there is one."""
    root = os.environ.get(DATA_VARIABLE)
    if not root:
        return None
    if not Path(root).is_dir():
        raise UsageError(f"{DATA_VARIABLE} = '{root}' (environment variable): no such folder; correct or unset it")
    folder = Path(root) / name
    return folder if folder.is_dir() else None


def _rows(published: Published, folder: Path | None, side: str) -> list[tuple[str, Row]]:
    if folder is not None:
        is_absent = side == "train" and not (folder / f"train{FILE_ENDING}").is_file()
        return [] if is_absent else folder_rows(folder, side)
    rows: list[tuple[str, Row]] = []
    for name, subset, split in published.train if side == "train" else published.test:
        where = f"{name}/{subset}/{split}" if subset else f"{name}/{split}"
        loaded = hub_rows(
            name, subset, split, option=f"task.name = '{published.name}' ({where} on the hub)", cure=_cure(published)
        )
        rows += [(f"{where} row {index}", row) for index, row in enumerate(loaded)]
    return rows


def _cure(published: Published) -> str:
    return (
        "load it once where there is one (it is kept on disk), or set task.path to a folder with train.jsonl and "
        f"test.jsonl, or {DATA_VARIABLE} to a folder that holds it as {published.folder}/"
    )


def _tasks(published: Published, split: str, rows: Iterable[tuple[str, Row]]) -> list[Task]:
    return [_task(published, f"{published.folder}/{split}/{i}", where, row) for i, (where, row) in enumerate(rows)]


def _task(published: Published, id: str, where: str, row: Row) -> Task:
    problem = published.read(where, row)
    if not problem.answer:
        raise UsageError(f"{where}: no reference answer of '{published.name}' can be read there; correct the row")
    return Task(id=id, prompt=f"{problem.question.strip()}\n", answer=problem.answer, columns=problem.columns)
