"""Questions from a file with one JSON object a line.

Goes in: a path and the names of two columns. Comes out: a `TaskSet`. Every row is checked before training starts, and
an error names the file and the line. Left out on purpose: other formats, compression, streaming.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from podsrl.errors import UsageError, nearest
from podsrl.tasks.base import TaskSet
from podsrl.types import Task

_SPLIT_STREAM = 0x51
"""Second word of the split's seed, so that it is another stream than the training order's [seed, epoch]."""

Prompt = str | tuple[Mapping[str, str], ...]
Row = dict[str, Any]


def load_jsonl(path: str | Path, *, prompt_column: str, answer_column: str, num_eval: int, seed: int) -> TaskSet:
    """Load questions from a UTF-8 file with one JSON object a line; blank lines are skipped.

    Args:
        path: the file.
        prompt_column: holds text, or a list of chat messages `{"role": text, "content": text}`.
        answer_column: holds text or a number, which is turned into text. The column "id", where there is one, names the
            task (text or whole number, unique); otherwise line 17 gets the id "line-17". All other columns go to
            `Task.columns`, and so does the answer under its own name if that is not "answer". A column that only some
            rows have is None in the others.
        num_eval: rows to hold out, at least 1 and fewer than there are.
        seed: of the shuffle that chooses them, at least 0. A prompt that several rows share is never held out, so
            that no held-out question is trained on.

    Returns:
        The set; training tasks in the order of the file.

    Raises:
        UsageError: the file cannot be read, is empty, or has a bad row; `num_eval` does not fit.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        ...     _ = file.write('{"question": "3+4=", "answer": 7}\\n{"question": "1+2=", "answer": 3}\\n')
        ...     file.flush()
        ...     tasks = load_jsonl(file.name, prompt_column="question", answer_column="answer", num_eval=1, seed=0)
        >>> len(tasks.train), len(tasks.eval)
        (1, 1)
    """
    if prompt_column == answer_column:
        raise UsageError(f"task.prompt_column and task.answer_column are both '{prompt_column}'; name two columns")
    rows = list(_read_rows(Path(path)))
    if not rows:
        raise UsageError(f"{path}: no rows (task.path); wanted one JSON object a line")
    names = dict.fromkeys(name for _, row in rows for name in row)
    tasks = [_row_task(f"{path}:{line}", line, row, names, prompt_column, answer_column) for line, row in rows]
    _check_unique_ids(path, [line for line, _ in rows], tasks)
    held_out = _choose_eval(path, tasks, num_eval, seed)
    return TaskSet(
        name=Path(path).name,
        train=tuple(task for index, task in enumerate(tasks) if index not in held_out),
        eval=tuple(tasks[index] for index in sorted(held_out)),
    )


def _read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        # Bytes, because text files also break lines at characters that JSON allows inside strings.
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except FileNotFoundError:
        raise UsageError(f"task.path = '{path}': no such file (looked for {path.absolute()})") from None
    except OSError as error:
        raise UsageError(f"task.path = '{path}': cannot be read: {error.strerror}; wanted a file") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, _parse_line(f"{path}:{number}", line)


def _parse_line(where: str, line: bytes) -> Row:
    try:
        row = json.loads(
            line.decode("utf-8"), object_pairs_hook=_object_without_repeats, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8: {error.reason} at byte {error.start}; save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {error}; wanted one JSON object a line") from error
    if not isinstance(row, dict):
        raise UsageError(f"{where}: {_shown(row)}; wanted a JSON object {{...}}")
    return row


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> Row:
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise ValueError(f"the key '{name}' stands there {times} times")
    return dict(pairs)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _row_task(
    where: str, line: int, row: Row, names: Mapping[str, None], prompt_column: str, answer_column: str
) -> Task:
    taken = {prompt_column, "id"} | ({"answer"} if answer_column == "answer" else set())
    return Task(
        id=_read_id(where, row["id"]) if "id" in row else f"line-{line}",
        prompt=_read_prompt(where, prompt_column, _column(where, row, "task.prompt_column", prompt_column)),
        answer=_read_answer(where, answer_column, _column(where, row, "task.answer_column", answer_column)),
        columns={name: row.get(name) for name in names if name not in taken},
    )


def _column(where: str, row: Row, option: str, name: str) -> object:
    if name in row:
        return row[name]
    hint = nearest(name, row) if row else ""
    hint = hint if "Did you mean" in hint else ""  # otherwise it lists the names a second time
    listed = ", ".join(f"'{known}'" for known in row) or "none"
    raise UsageError(f"{where}: no column '{name}' ({option}); columns there: {listed}.{hint}")


def _read_id(where: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise UsageError(f"{where}: column 'id' is {_shown(value)}; wanted text or a whole number")
    return str(value)


def _read_answer(where: str, column: str, value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number and not (isinstance(value, str) and value.strip()):
        raise UsageError(f"{where}: column '{column}' (task.answer_column) is {_shown(value)}; wanted text or a number")
    return str(value)


def _read_prompt(where: str, column: str, value: object) -> Prompt:
    here = f"{where}: column '{column}' (task.prompt_column)"
    if isinstance(value, str):
        if not value.strip():
            raise UsageError(f"{here} is an empty prompt; wanted a question")
        return value
    if not isinstance(value, list):
        raise UsageError(f"{here} is {_shown(value)}; wanted text or a list of chat messages")
    if not value:
        raise UsageError(f"{here} is an empty prompt: a list without messages; wanted at least one")
    for message in value:
        if not _is_message(message):
            raise UsageError(f'{here} has the message {_shown(message)}; wanted {{"role": text, "content": text}}')
    if not any(message["content"].strip() for message in value):
        raise UsageError(f"{here} is an empty prompt: no message has any content; wanted a question")
    return tuple(value)


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and message.keys() == {"role", "content"} and _are_texts(list(message.values()))


def _are_texts(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_unique_ids(path: str | Path, lines: Sequence[int], tasks: Sequence[Task]) -> None:
    first: dict[str, int] = {}
    for line, task in zip(lines, tasks, strict=True):
        if task.id in first:
            raise UsageError(f"{path}:{line}: the id '{task.id}' is taken by line {first[task.id]}; make ids unique")
        first[task.id] = line


def _choose_eval(path: str | Path, tasks: Sequence[Task], num_eval: int, seed: int) -> set[int]:
    if seed < 0:
        raise UsageError(f"seed = {seed}; wanted at least 0")
    prompts = [task.prompt if isinstance(task.prompt, str) else json.dumps(task.prompt) for task in tasks]
    times = Counter(prompts)
    single = [index for index, prompt in enumerate(prompts) if times[prompt] == 1]
    most = min(len(single), len(tasks) - 1)
    if not 1 <= num_eval <= most:
        repeats = len(tasks) - len(single)
        because = f", {repeats} of them with a prompt that another row shares" if repeats else ""
        raise UsageError(
            f"task.num_eval = {num_eval}: {path} has {len(tasks)} rows{because}; at least one must be left "
            f"for training: choose 1 .. {most} or add rows"
        )
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _SPLIT_STREAM])))
    return {single[index] for index in generator.permutation(len(single))[:num_eval].tolist()}
