"""Turn a row (column name -> value) into a `Task`, or into an error that names the row's place."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from typing import Any

from podsrl.errors import UsageError
from podsrl.types import Task

Prompt = str | tuple[Mapping[str, str], ...]
Row = dict[str, Any]


def row_task(
    where: str, row: Row, *, id: str, names: Mapping[str, None], prompt_column: str, answer_column: str
) -> Task:
    """Turn a row into a task; its place is `where` in messages, e.g. "rows.jsonl:7".

    Of all columns of the data set, `names`, those that this row lacks are None. The columns "id" and, under a name
    other than "answer", the answer stay among them. UsageError: a column is missing, or holds something else.

    Example:
        >>> row = {"q": "1+2=", "a": 3}
        >>> task = row_task("here", row, id="x", names=dict.fromkeys(row), prompt_column="q", answer_column="a")
        >>> task.prompt, task.answer, dict(task.columns)
        ('1+2=', '3', {'a': 3})
    """
    taken = {prompt_column} | ({"answer"} if answer_column == "answer" else set())
    return Task(
        id=id,
        prompt=_read_prompt(where, prompt_column, column(where, row, prompt_column, option="task.prompt_column")),
        answer=_read_answer(where, answer_column, column(where, row, answer_column, option="task.answer_column")),
        columns={name: row.get(name) for name in names if name not in taken},
    )


def json_columns(task: Task) -> Row:
    """A task's columns as a file holds them: what JSON has no form for is text, or left out if it is a key within a
    column; NaN and infinity are None.

    Example:
        >>> json_columns(Task(id="x", prompt="1+2=", answer="3", columns={"place": 1 + 2j, "share": math.nan}))
        {'place': '(1+2j)', 'share': None}
    """
    text = json.dumps(dict(task.columns), default=str, skipkeys=True)
    columns: Row = json.loads(text, parse_constant=lambda constant: None)
    return columns


def json_prompt(task: Task) -> str | list[dict[str, str]]:
    """A task's prompt as a file holds it: the text, or the list of chat messages."""
    return task.prompt if isinstance(task.prompt, str) else [dict(message) for message in task.prompt]


def column(where: str, row: Row, name: str, *, option: str = "") -> Any:
    """A column's value. UsageError: there is no such column; the message lists the existing ones and the nearest."""
    if name in row:
        return row[name]
    close = difflib.get_close_matches(name, row, n=1, cutoff=0.75)
    hint = f" Did you mean '{close[0]}'?" if close else f" Set {option} to one of them." if option and row else ""
    listed = ", ".join(f"'{known}'" for known in row) or "none"
    option = f" ({option})" if option else ""
    raise UsageError(f"{where}: no column '{name}'{option}; columns there: {listed}.{hint}")


def text_column(where: str, row: Row, name: str) -> str:
    """A column's text. UsageError: there is no such column, or it holds no text."""
    value = column(where, row, name)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{where}: column '{name}' is {shown(value)}; wanted text")
    return check_characters(f"{where}: column '{name}'", value)


def check_characters(where: str, text: str) -> str:
    """The same text. UsageError: it holds NUL, or half a surrogate pair, which no file and no tokenizer accepts."""
    if "\0" in text:
        raise UsageError(f"{where} holds a NUL character at place {text.index(chr(0)) + 1}; remove it")
    if not text.isascii() and (place := _lone_surrogate(text)) is not None:
        raise UsageError(
            f"{where} holds half a surrogate pair (\\u{ord(text[place]):04x}) at place {place + 1}, which is no "
            "character: write the whole pair, or the character itself"
        )
    return text


def check_row_characters(where: str, row: Row) -> None:
    """UsageError: a text of the row, or a column's name, cannot be written as UTF-8: it has half a surrogate pair."""
    for name, value in row.items():
        text = json.dumps([name, value], ensure_ascii=False, default=str)
        if _lone_surrogate(text) is not None:
            raise UsageError(
                f"{where}: column {json.dumps(name)} holds half a surrogate pair (an escape such as \\ud800 without "
                "its second half), which is no character: write the whole pair, or the character itself"
            )


def _lone_surrogate(text: str) -> int | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def shown(value: object) -> str:
    """A value as JSON for a message, at most 60 characters.

    Example:
        >>> shown(None), shown("x" * 100)[-5:]
        ('null', 'xx...')
    """
    text = json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace").decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_two_columns(prompt_column: str, answer_column: str) -> None:
    """UsageError: prompt and answer are the same column."""
    if prompt_column == answer_column:
        raise UsageError(f"task.prompt_column and task.answer_column are both '{prompt_column}'; name two columns")


def _read_answer(where: str, column: str, value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number and not (isinstance(value, str) and value.strip()):
        raise UsageError(f"{where}: column '{column}' (task.answer_column) is {shown(value)}; wanted text or a number")
    return check_characters(f"{where}: column '{column}' (task.answer_column)", str(value))


def _read_prompt(where: str, column: str, value: object) -> Prompt:
    here = f"{where}: column '{column}' (task.prompt_column)"
    if isinstance(value, str):
        if not value.strip():
            raise UsageError(f"{here} is an empty prompt; wanted a question")
        return check_characters(here, value)
    if not isinstance(value, list):
        raise UsageError(f"{here} is {shown(value)}; wanted text or a list of chat messages")
    if not value:
        raise UsageError(f"{here} is an empty prompt: a list without messages; wanted at least one")
    for message in value:
        if not _is_message(message):
            raise UsageError(f'{here} has the message {shown(message)}; wanted {{"role": text, "content": text}}')
    if not any(message["content"].strip() for message in value):
        raise UsageError(f"{here} is an empty prompt: no message has any content; wanted a question")
    for message in value:
        for text in message.values():
            check_characters(here, text)
    return tuple(value)


def _is_message(message: object) -> bool:
    if not isinstance(message, dict) or message.keys() != {"role", "content"}:
        return False
    return all(isinstance(text, str) for text in message.values())
