"""Known data sets: where their rows come from, and how they become a `TaskSet`.

A `Published` names the places of a set and reads one of its rows. Its `TaskSet` uses chat messages and the math
rewards. The set's own test split is held out; its training split is never used for evaluation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
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
"""Environment variable: a folder with one folder per set (gsm8k/, math/ …), which holds train.jsonl and test.jsonl."""
_task_set = partial(
    TaskSet,
    rewards={"math_correct": 1.0, "answer_format": 0.2},
    correct="math_correct",
    format="answer_format",
    chat=True,
)

HubSplit = tuple[str, str | None, str]
"""A data set's name on the hub, its subset, its split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The content of one published row."""

    question: str
    answer: str | None
    """The reference answer; None if there is none."""
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One known data set."""

    name: str
    folder: str
    """Its folder in `PODS_DATA`; also the beginning of its tasks' ids."""
    train: tuple[HubSplit, ...]
    test: tuple[HubSplit, ...]
    read: Callable[[str, Row], Problem]
    """Reads a row; the first argument is its place, for messages."""


def load_published(published: Published, *, path: str | None, num_eval: int | None, seed: int) -> TaskSet:
    """Load a known set from `path`, else from the folder in `PODS_DATA`, else from the hub.

    `path` is a folder with train.jsonl and test.jsonl (without train.jsonl it is for evaluation only), or one .jsonl
    file. Questions are held out by `take_eval`, of one file by `hold_out`. UsageError: the rows cannot be found or
    read, a question or an answer is missing, `num_eval` does not fit.
    """
    file = Path(path).expanduser() if path is not None else None
    if file is not None and not file.is_dir():
        return _one_file(published, file, num_eval, seed)
    folder = file if file is not None else _data_folder(published.folder)
    where = "the hub" if folder is None else str(folder)
    test = _tasks(published, "test", _rows(published, folder, "test"))
    train, notes = without_held_out(_tasks(published, "train", _rows(published, folder, "train")), test)
    held_out = take_eval(f"the test split of '{published.name}' ({where})", test, num_eval, seed)
    return _task_set(name=published.name, train=train, eval=held_out, notes=notes)


def _one_file(published: Published, file: Path, num_eval: int | None, seed: int) -> TaskSet:
    if file.suffix != FILE_ENDING:
        raise UsageError(f"task.path = '{file}': no such folder; wanted a folder or a {FILE_ENDING} file")
    rows = [(f"{file}:{line}", row) for line, row in read_rows(file)]
    train, held_out = hold_out(file, _tasks(published, file.stem, rows), num_eval, seed)
    return _task_set(name=published.name, train=train, eval=held_out)


def _data_folder(name: str) -> Path | None:
    """The set's folder in `PODS_DATA`; None if there is none."""
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
            name,
            subset,
            split,
            option=f"task.name = '{published.name}' ({where} on the hub)",
            cure="load it once where there is one (it is kept on disk), or set task.path to a folder with train.jsonl "
            f"and test.jsonl, or {DATA_VARIABLE} to a folder that holds it as {published.folder}/",
        )
        rows += [(f"{where} row {index}", row) for index, row in enumerate(loaded)]
    return rows


def _tasks(published: Published, split: str, rows: Iterable[tuple[str, Row]]) -> list[Task]:
    return [_task(published, f"{published.folder}/{split}/{i}", where, row) for i, (where, row) in enumerate(rows)]


def _task(published: Published, id: str, where: str, row: Row) -> Task:
    problem = published.read(where, row)
    if not problem.answer:
        raise UsageError(f"{where}: no reference answer of '{published.name}' can be read there; correct the row")
    return Task(id=id, prompt=f"{problem.question.strip()}\n", answer=problem.answer, columns=problem.columns)
