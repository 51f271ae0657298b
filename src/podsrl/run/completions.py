"""Stored completions, to judge them again: a file of one's own, or the groups that a run recorded.

Goes in: a JSONL file. Comes out: `Stored` rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from podsrl.errors import UsageError
from podsrl.tasks.jsonl import read_rows
from podsrl.tasks.rows import Row, column, row_task, shown
from podsrl.types import Task

PROMPT_COLUMNS = ("prompt", "question", "problem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One completion with what is needed to judge it."""

    where: str
    """File and line, for messages."""
    task: Task
    text: str
    label: bool | None
    """Whether it is known to be right; None where nothing is known."""


def read_completions(path: Path) -> list[Stored]:
    """Read completions from a JSONL file.

    Args:
        path: either one completion a line, with the columns "prompt" (or "question", "problem"), "completion",
            "answer", perhaps "label" (true or false, 1 or 0, or null: is it right?), and whatever else a reward reads;
            or a run's `groups.jsonl`, where the label is what the run's own reward said.

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
    if not path.is_file():
        raise UsageError(f"{path}: no such file; wanted stored completions (JSONL), or a run's groups.jsonl")
    rows = [(f"{path}:{line}", row) for line, row in read_rows(path)]
    names = dict.fromkeys(name for _, row in rows for name in row)
    return [
        stored
        for where, row in rows
        for stored in (_group(where, row) if "rollouts" in row else [_completion(where, row, names)])
    ]


def _completion(where: str, row: Row, names: dict[str, None]) -> Stored:
    prompt = next((name for name in PROMPT_COLUMNS if name in row), PROMPT_COLUMNS[0])
    text = column(where, row, "completion")
    if not isinstance(text, str):
        raise UsageError(f"{where}: column 'completion' is {shown(text)}; wanted text")
    columns = {name: None for name in names if name not in ("completion", "label", "id")}
    name = str(row.get("id", where))
    task = row_task(where, row, id=name, names=columns, prompt_column=prompt, answer_column="answer")
    return Stored(where=where, task=task, text=text, label=_label(where, row.get("label")))


def _label(where: str, value: object) -> bool | None:
    if value is None:
        return None
    if value not in (0, 1):  # True is 1 and False is 0
        raise UsageError(f"{where}: column 'label' is {shown(value)}; wanted true or false, 1 or 0, or null")
    return bool(value)


def _group(where: str, row: Row) -> Iterator[Stored]:
    try:
        fields = row["task"]
        task = Task(id=str(fields["id"]), prompt=str(fields["prompt"]), answer=str(fields["answer"]))
        for rollout in row["rollouts"]:
            label = None if rollout["invalid_reason"] is not None else bool(rollout["is_correct"])
            yield Stored(where=f"{where} [{rollout['index']}]", task=task, text=str(rollout["text"]), label=label)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{where}: not a line of a run's groups.jsonl ({error!r})") from error
