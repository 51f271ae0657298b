"""Rows of one split of a data set, from the Hugging Face hub or from files on disk.

Goes in: a name and a split. Comes out: its rows, all in memory. The library `datasets` is imported when it is needed.
"""

from __future__ import annotations

import re
from pathlib import Path

from podsrl.errors import UnavailableError, UsageError, nearest
from podsrl.tasks.jsonl import read_rows
from podsrl.tasks.rows import Row

FILE_ENDING = ".jsonl"


def hub_rows(name: str, subset: str | None, split: str, *, option: str, cure: str) -> list[Row]:
    """Load one split through `datasets.load_dataset`, which keeps a copy for the next time.

    Args:
        name: of a data set on the hub, or a folder that `datasets` can read.
        subset: its configuration; None where it has one only.
        split: e.g. "train", or a slice such as "train[:1000]".
        option: what messages call the data set.
        cure: what a message advises where the hub cannot be reached.

    Raises:
        UsageError: no network, no such data set, subset or split, or a split without rows.
    """
    from datasets import load_dataset  # a second to import, and only these sets need it

    try:
        rows: list[Row] = load_dataset(name, subset, split=split).to_list()
    except Exception as error:  # of many kinds: network, disk, hub, formats
        if "no data" not in str(error):
            kind = UnavailableError if _is_unreachable(error) else UsageError
            raise kind(f"{option}: {_explained(error, cure)}") from error
        rows = []
    if not rows:
        raise UsageError(f"{option}: split '{split}' has no rows; choose another one")
    return rows


def folder_rows(folder: Path, split: str) -> list[tuple[str, Row]]:
    """Read the file SPLIT.jsonl of a folder.

    Returns:
        For each row, where it stands ("FOLDER/train.jsonl:17") and its columns.

    Raises:
        UsageError: there is no such file, or a row is no JSON object.
    """
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
    """Add the nearest name to a message that names a missing split or subset first and then those there are."""
    missing, _, listed = text.partition("[")
    wanted, known = re.findall(r"[\"']([^\"']+)[\"']", missing), re.findall(r"[\"']([^\"']+)[\"']", listed)
    hint = nearest(wanted[0], known) if wanted and known else ""
    return hint if "Did you mean" in hint else ""
