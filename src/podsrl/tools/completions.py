"""Stored completions: the one file that `pods eval` writes, and `pods check-reward` and `pods report` read.

One JSON object per line, with these names; all but the first four may be missing or null:

    prompt           text, or a list of chat messages; "question" and "problem" are read too
    completion       what the model wrote
    answer           the reference answer
    id               of the question
    sample           which of the question's completions, from 0
    extracted        the final answer that was found in the completion
    reward           null where there is none
    is_correct       whether the answer is right
    is_formatted     whether it has the wanted form
    invalid_reason   why there is no reward
    num_tokens       of the completion
    finish_reason    stop or length; null where it failed
    label            whether it is known to be right; it goes before `is_correct`
    columns          an object with further columns of the data set whose names are taken by the ones above

Everything else is a column of the data set, which a reward may read. A run's `groups.jsonl` is read as well.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from podsrl.errors import UsageError
from podsrl.lib.logs import parse_line
from podsrl.run.group_log import parse_group
from podsrl.tasks.jsonl import read_lines
from podsrl.tasks.rows import Row, column, json_columns, json_prompt, row_task, shown
from podsrl.types import Group, Task

PROMPT_COLUMNS = ("prompt", "question", "problem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One completion with what is needed to judge it, and what is known about it (None: nothing)."""

    where: str = ""
    """File and line, for messages."""
    task: Task
    text: str
    label: bool | None = None
    """Whether it is known to be right."""
    sample: int | None = None
    extracted: str | None = None
    reward: float | None = None
    is_correct: bool | None = None
    is_formatted: bool | None = None
    invalid_reason: str | None = None
    num_tokens: int | None = None
    finish_reason: str | None = None

    def to_json(self) -> Row:
        """The line that `read_completions` reads back; a value that JSON has no form for is written as text."""
        record = {
            "id": self.task.id,
            "prompt": json_prompt(self.task),
            "completion": self.text,
            "answer": self.task.answer,
            **{name: getattr(self, name) for name in _FACTS},
        }
        own = json_columns(self.task)
        hidden = {name: own.pop(name) for name in _TAKEN & own.keys()}
        hidden = {name: value for name, value in sorted(hidden.items()) if record.get(name, hidden) != value}
        return {**record, **own, **({"columns": hidden} if hidden else {})}


_FACTS = tuple(each.name for each in fields(Stored) if each.name not in ("where", "task", "text", "label"))
"""Fields of `Stored` that stand in the file under their own names."""
_TAKEN = {"id", "prompt", "completion", "answer", "label", "columns", *_FACTS}


def stored_group(group: Group) -> list[Stored]:
    """The completions of a judged group."""
    return [
        Stored(
            task=group.task,
            text=rollout.text,
            sample=index,
            extracted=rollout.answer,
            reward=rollout.reward if rollout.is_valid else None,
            is_correct=rollout.is_correct,
            is_formatted=rollout.is_formatted,
            invalid_reason=rollout.invalid_reason,
            num_tokens=len(rollout.token_ids),
            finish_reason=rollout.finish_reason,
        )
        for index, rollout in enumerate(group.rollouts)
    ]


def check_out(out: Path | None, *, is_forced: bool = False) -> None:
    """Check before any work that the file can be written; None: nothing will be.

    Raises:
        UsageError: `out` is a folder, its folder does not exist, or it exists and is not to be replaced.
    """
    if out is None:
        return
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: wanted a file in a folder that is there")
    if out.is_file() and not is_forced:
        raise UsageError(f"--out {out}: this file exists; choose another one, or replace it with --force")


@contextmanager
def completions_writer(out: Path | None) -> Iterator[Callable[[Iterable[Stored]], None]]:
    """Open a file for completions, in place of an older one (None: nothing is written); each call is flushed.

    Raises:
        UsageError: the file cannot be opened.
    """
    if out is None:
        yield lambda stored: None
        return
    try:
        file = out.open("w", encoding="ascii")  # JSON escapes the rest, half of a surrogate pair included
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written ({error.strerror}); choose another file") from error
    with file:

        def write(stored: Iterable[Stored]) -> None:
            file.write("".join(f"{json.dumps(one.to_json())}\n" for one in stored))
            file.flush()

        yield write


def read_completions(path: Path) -> list[Stored]:
    """Read stored completions, or a run's `groups.jsonl`; a half-written last line is left out with a warning.

    A label is the column "label", or else what the reward of that time said ("is_correct").

    Raises:
        UsageError: there is no such file, a line is no JSON object, or a column is missing or holds something else.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        ...     _ = file.write('{"question": "1+2=", "completion": "It is 3.", "answer": 3, "label": true}')
        ...     file.flush()
        ...     [stored] = read_completions(Path(file.name))
        >>> stored.task.answer, stored.text, stored.label
        ('3', 'It is 3.', True)
    """
    rows = list(_read_lines(path))
    names = dict.fromkeys(name for _, row in rows for name in row if name not in _TAKEN - {"prompt", "answer"})
    found = [
        stored
        for where, row in rows
        for stored in (_group(where, row) if "rollouts" in row else [_completion(where, row, names)])
    ]
    if old := [where for where, row in rows if "rollouts" in row and "columns" not in row["task"]]:
        warnings.warn(
            f"{old[0]}: an older log, without the data's columns and with chat messages as one text, so a reward that "
            "reads them judges otherwise than in the run",
            stacklevel=2,
        )
    return found


def _read_lines(path: Path) -> Iterator[tuple[str, Row]]:
    """Place and object of each line that is not blank."""
    lines, num_found = read_lines(path, "FILE"), 0
    for number, line in enumerate(lines, start=1):
        row = parse_line(line)
        if row is not None:
            num_found += 1
            yield f"{path}:{number}", row
        elif line.strip() and number == len(lines):
            warnings.warn(f"{path}:{number}: half written, so it is left out", stacklevel=2)
        elif line.strip():
            start = line[:40].decode(errors="replace")
            raise UsageError(f"{path}:{number}: '{start}' is no whole JSON object; wanted one per line")
    if not num_found:
        raise UsageError(f"{path}: no completions; wanted stored completions (JSONL), or a run's groups.jsonl")


def _completion(where: str, row: Row, names: Mapping[str, None]) -> Stored:
    prompt = next((name for name in PROMPT_COLUMNS if name in row), PROMPT_COLUMNS[0])
    text, hidden = column(where, row, "completion"), _hidden(where, row)
    if not isinstance(text, str):
        raise UsageError(f"{where}: column 'completion' is {shown(text)}; wanted text")
    task = row_task(where, row, id=str(row.get("id", where)), names=names, prompt_column=prompt, answer_column="answer")
    if hidden:
        task = replace(task, columns={**task.columns, **hidden})
    return _with_facts(Stored(where=where, task=task, text=text), row)


def _hidden(where: str, row: Row) -> Row:
    """What the object "columns" holds, if there is one."""
    hidden = row.get("columns")
    if not isinstance(hidden, dict | None):
        raise UsageError(f"{where}: column 'columns' is {shown(hidden)}; wanted an object: name -> value")
    return hidden or {}


def _with_facts(stored: Stored, row: Row) -> Stored:
    facts = {name: _read_fact(stored.where, name, row.get(name)) for name in _FACTS}
    label = _flag(stored.where, "label", row.get("label"))
    if label is None and facts["invalid_reason"] is None:
        label = facts["is_correct"]
    return replace(stored, label=label, **facts)


def _read_fact(where: str, name: str, value: object) -> Any:
    if value is None:
        return None
    if name.startswith("is_"):
        return _flag(where, name, value)
    kinds, wanted = {
        "reward": ((int, float), "a number"),
        "sample": ((int,), "a whole number"),
        "num_tokens": ((int,), "a whole number"),
    }.get(name, ((str,), "text"))
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise UsageError(f"{where}: column '{name}' is {shown(value)}; wanted {wanted}, or null")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise UsageError(f"{where}: column '{name}' is {shown(value)}; wanted {wanted} below 2^63, or null")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flag(where: str, name: str, value: object) -> bool | None:
    if value is None:
        return None
    if value not in (0, 1):  # True is 1 and False is 0
        raise UsageError(f"{where}: column '{name}' is {shown(value)}; wanted true or false, 1 or 0, or null")
    return bool(value)


def _group(where: str, row: Row) -> Iterator[Stored]:
    try:
        group = parse_group(row)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{where}: not a line of a run's groups.jsonl ({error!r})") from error
    prompt, columns = row["task"]["prompt"], _hidden(where, row["task"])
    prompt = prompt if isinstance(prompt, str) else tuple(prompt)
    task = Task(id=group.task_id, prompt=prompt, answer=group.answer, columns=columns)
    for rollout in group.rollouts:
        yield Stored(
            where=f"{where} [{rollout.index}]",
            task=task,
            text=rollout.text,
            label=rollout.is_correct if rollout.is_judged else None,
            sample=rollout.index,
            reward=rollout.reward,
            is_correct=rollout.is_correct,
            invalid_reason=rollout.invalid_reason,
            num_tokens=rollout.num_tokens,
            finish_reason=rollout.finish_reason,
        )
