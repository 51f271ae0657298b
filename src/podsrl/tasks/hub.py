"""Questions from any data set of the Hugging Face hub, or from files on disk in its place.

All rows are checked and held in memory: of a very large set take a slice, such as "train[:50000]". The library
`datasets` is imported only when it is needed.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from podsrl.errors import UnavailableError, UsageError, nearest
from podsrl.tasks.base import TaskSet
from podsrl.tasks.jsonl import read_rows
from podsrl.tasks.rows import Row, check_two_columns, row_task
from podsrl.tasks.split import hold_out, take_eval, without_held_out
from podsrl.types import Task

FILE_ENDING = ".jsonl"


def load_hub(
    *,
    path: str,
    subset: str | None,
    train_split: str | None,
    eval_split: str | None,
    prompt_column: str,
    answer_column: str,
    num_eval: int | None,
    seed: int,
) -> TaskSet:
    """Load a data set from the hub or from files, with its prompts and answers in named columns.

    Args:
        path: its name on the hub; or a folder with one file SPLIT.jsonl per split, or with other files that `datasets`
            reads.
        subset: its configuration; None if it has only one.
        train_split, eval_split: None: "train", of which `num_eval` rows are held out.
        prompt_column, answer_column: see `load_jsonl`.
        num_eval, seed: see `take_eval`; without `eval_split` see `hold_out`.

    Returns:
        The set; row 17 of the split "train" of "someone/sums" is the task "sums/train/17".

    Raises:
        UsageError: no such data set, subset, split or column, a bad row, no network; `num_eval` does not fit.
    """
    check_two_columns(prompt_column, answer_column)
    if path.endswith(FILE_ENDING):
        raise UsageError(
            f"task.path = '{path}' is a file, which task.name = 'hub' does not read: set task.name = 'jsonl'"
        )
    train_split = train_split or "train"
    if eval_split == train_split:
        raise UsageError(f"task.train_split and task.eval_split are both '{eval_split}'; name two, or one only")
    train = _tasks(path, subset, train_split, prompt_column, answer_column)
    name = f"{path}/{subset}" if subset else path
    if eval_split is None:
        kept, held_out = hold_out(f"the split '{train_split}' of '{name}'", train, num_eval, seed)
        return TaskSet(name=name, train=kept, eval=held_out)
    test = _tasks(path, subset, eval_split, prompt_column, answer_column)
    kept, notes = without_held_out(train, test)
    held_out = take_eval(f"the split '{eval_split}' of '{name}'", test, num_eval, seed)
    return TaskSet(name=name, train=kept, eval=held_out, notes=notes)


def _tasks(path: str, subset: str | None, split: str, prompt_column: str, answer_column: str) -> list[Task]:
    rows = _rows(path, subset, split)
    names = dict.fromkeys(name for _, row in rows for name in row)
    read = partial(row_task, names=names, prompt_column=prompt_column, answer_column=answer_column)
    return [read(where, row, id=f"{Path(path).name}/{split}/{i}") for i, (where, row) in enumerate(rows)]


def _rows(path: str, subset: str | None, split: str) -> list[tuple[str, Row]]:
    folder = Path(path).expanduser()
    if any(folder.glob(f"*{FILE_ENDING}")):
        if subset is not None:
            raise UsageError(f"task.subset = '{subset}', but the folder task.path = '{path}' has none: leave it out")
        return folder_rows(folder, split)
    rows = hub_rows(
        str(folder) if folder.is_dir() else path,
        subset,
        split,
        option=f"task.path = '{path}'",
        cure="load it once where there is one (it is kept on disk), or set task.path to a folder with a file "
        f"{split}.jsonl, or take task.name = 'jsonl' with one file",
    )
    return [(f"{path}/{split} row {index}", row) for index, row in enumerate(rows)]


def hub_rows(name: str, subset: str | None, split: str, *, option: str, cure: str) -> list[Row]:
    """Load one split through `datasets.load_dataset`, which keeps a copy on disk.

    Messages call the data set `option`, and advise `cure` if the hub cannot be reached. UsageError: no network, no such
    data set, subset or split, or a split without rows.
    """
    from datasets import load_dataset  # a second to import, and only these sets need it

    try:
        rows: list[Row] = load_dataset(name, subset, split=split).to_list()
    except Exception as error:  # network, disk, hub, formats: each has its own types
        if "no data" not in str(error):
            kind = UnavailableError if _is_unreachable(error) else UsageError
            raise kind(f"{option}: {_explained(error, cure)}") from error
        rows = []
    if not rows:
        raise UsageError(f"{option}: split '{split}' has no rows; choose another one")
    return rows


def folder_rows(folder: Path, split: str) -> list[tuple[str, Row]]:
    """For each row of SPLIT.jsonl in a folder its place ("FOLDER/train.jsonl:17") and its columns."""
    path = folder / f"{split}{FILE_ENDING}"
    if not path.is_file():
        there = sorted(entry.stem for entry in folder.glob(f"*{FILE_ENDING}"))
        hint = nearest(split, there) if there else f" It holds no {FILE_ENDING} file."
        raise UsageError(f"task.path = '{folder}': no split '{split}' there (wanted the file {path.name}).{hint}")
    return [(f"{path}:{line}", row) for line, row in read_rows(path)]


def _explained(error: Exception, cure: str) -> str:
    text = " ".join(str(error).split())
    if _is_unreachable(error):
        return f"cannot be loaded without a network ({text}); {cure}"
    if not isinstance(error, ValueError):
        return f"cannot be loaded: {type(error).__name__}: {text}"
    return f"{text}{_near(text)}"


def _is_unreachable(error: Exception) -> bool:
    return isinstance(error, ConnectionError) or "offline" in type(error).__name__.lower()


def _near(text: str) -> str:
    """The nearest name, for a message that names a missing split or subset and then lists the existing ones."""
    missing, _, listed = text.partition("[")
    wanted, known = re.findall(r"[\"']([^\"']+)[\"']", missing), re.findall(r"[\"']([^\"']+)[\"']", listed)
    hint = nearest(wanted[0], known) if wanted and known else ""
    return hint if "Did you mean" in hint else ""
