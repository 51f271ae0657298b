"""Questions from a file with one JSON object per line.

Every row is checked before training starts, and an error names the file and the line. Other formats, compression and
streaming are left out on purpose.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from podsrl.errors import UsageError
from podsrl.tasks.base import TaskSet
from podsrl.tasks.rows import Row, check_row_characters, check_two_columns, row_task, shown
from podsrl.tasks.split import hold_out, take_eval, without_held_out
from podsrl.types import Task

MAX_LINE_BYTES = 64 << 20
"""A longer line is refused unread: no window holds such a question, and a file that is one line is no JSONL."""


def load_jsonl(
    path: str | Path,
    *,
    prompt_column: str,
    answer_column: str,
    num_eval: int | None,
    seed: int,
    eval_path: str | Path | None = None,
) -> TaskSet:
    """Load questions from a UTF-8 file with one JSON object per line; blank lines are skipped.

    Args:
        path: the file.
        prompt_column: holds text, or a list of chat messages `{"role": text, "content": text}`.
        answer_column: holds text or a number, which is turned into text. The column "id", where there is one, names the
            task (unique); otherwise line 17 gets the id "line-17". All other columns go to `Task.columns`, and so does
            the answer under its own name if that is not "answer".
        num_eval, seed: rows to hold out; see `hold_out`. With `eval_path`: the first so many of a fixed shuffle of its
            rows; 0 or None: all of them.
        eval_path: a file like the first, of the questions to hold out; ids are "eval-line-17". A question that stands
            in both files is left out of training, and `TaskSet.notes` says so.

    Raises:
        UsageError: a file cannot be read, is empty, or has a bad row; `num_eval` does not fit; both files are one, or
            ask the same questions.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        ...     _ = file.write('{"question": "3+4=", "answer": 7}\\n{"question": "1+2=", "answer": 3}\\n')
        ...     file.flush()
        ...     tasks = load_jsonl(file.name, prompt_column="question", answer_column="answer", num_eval=1, seed=0)
        >>> len(tasks.train), len(tasks.eval)
        (1, 1)
    """
    check_two_columns(prompt_column, answer_column)
    rows, eval_rows = read_rows(path), _read_eval_rows(path, eval_path)
    names = dict.fromkeys(name for _, row in (*rows, *eval_rows) for name in row if name != "id")
    read = partial(row_task, names=names, prompt_column=prompt_column, answer_column=answer_column)
    tasks = _read_tasks(path, rows, "line", read)
    if eval_path is None:
        train, held_out = hold_out(path, tasks, num_eval, seed)
        return TaskSet(name=Path(path).name, train=train, eval=held_out)
    eval_tasks = _read_tasks(eval_path, eval_rows, "eval-line", read)
    train, notes = without_held_out(tasks, eval_tasks, eval_path)
    if not train:
        raise UsageError(f"task.path = '{path}': every question there is also in task.eval_path = '{eval_path}'")
    held_out = take_eval(eval_path, eval_tasks, num_eval or 0, seed)
    return TaskSet(name=Path(path).name, train=train, eval=held_out, notes=notes)


def _read_eval_rows(path: str | Path, eval_path: str | Path | None) -> list[tuple[int, Row]]:
    if eval_path is None:
        return []
    if Path(eval_path).resolve() == Path(path).resolve():
        raise UsageError(
            f"task.path and task.eval_path are both '{eval_path}': name two files, or leave task.eval_path out to hold "
            "out rows of the one"
        )
    return read_rows(eval_path, option="task.eval_path")


def _read_tasks(
    path: str | Path, rows: Sequence[tuple[int, Row]], id_prefix: str, read: Callable[..., Task]
) -> list[Task]:
    """Tasks with unique ids."""
    tasks, lines = list[Task](), dict[str, int]()
    for line, row in rows:
        where = f"{path}:{line}"
        task = read(where, row, id=_read_id(where, row["id"]) if "id" in row else f"{id_prefix}-{line}")
        if task.id in lines:
            raise UsageError(f"{where}: the id '{task.id}' is taken by line {lines[task.id]}; make ids unique")
        lines[task.id] = line
        tasks.append(task)
    return tasks


def read_rows(path: str | Path, option: str = "task.path") -> list[tuple[int, Row]]:
    """Line number (from 1) and object of each line that is not blank, of a file with one JSON object per line.

    UsageError: the file cannot be read, has no rows, or a line is no JSON object; `option` names the file in messages.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        ...     _ = file.write('{"question": "3+4="}\\n\\n{"question": "1+2="}\\n')
        ...     file.flush()
        ...     read_rows(file.name)
        [(1, {'question': '3+4='}), (3, {'question': '1+2='})]
    """
    lines = enumerate(read_lines(Path(path), option), start=1)
    rows = [(number, _parse_line(f"{path}:{number}", line)) for number, line in lines if line.strip()]
    if not rows:
        raise UsageError(f"{path}: no rows ({option}); wanted one JSON object per line")
    return rows


def read_lines(path: Path, option: str) -> list[bytes]:
    """All lines of a file; the last one is empty where the file ends with a line break.

    UsageError: the file cannot be read, or a line is longer than `MAX_LINE_BYTES`; `option` names it in messages.
    """
    lines, line = list[bytes](), b"\n"
    try:
        # Bytes, because text files also break lines at characters that JSON allows inside strings.
        with path.open("rb") as file:
            while line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES + 1)
                lines.append(line.removesuffix(b"\n"))
    except FileNotFoundError:
        cure = "" if path.is_absolute() else "; a relative path starts from the folder in which pods is called"
        raise UsageError(f"{option} = '{path}': no such file (looked for {path.absolute()}){cure}") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{option} = '{path}': cannot be read: {reason}; wanted a file") from error
    if len(line) > MAX_LINE_BYTES:
        raise UsageError(
            f"{path}:{len(lines)}: the line has more than {MAX_LINE_BYTES:,} bytes ({option}); wanted one JSON object "
            f"per line{_other_format(line) or '; shorten it, or leave it out'}"
        )
    return [lines[0].removeprefix(b"\xef\xbb\xbf"), *lines[1:]]


def _parse_line(where: str, line: bytes) -> Row:
    try:
        row = json.loads(
            line.decode("utf-8"), object_pairs_hook=_object_without_repeats, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8: {error.reason} at byte {error.start}; save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise UsageError(
            f"{where}: not JSON: {reason}; wanted one JSON object per line{_other_format(line)}"
        ) from error
    if not isinstance(row, dict):
        raise UsageError(f"{where}: {shown(row)}; wanted a JSON object {{...}} per line{_other_format(line)}")
    if b"\\ud" in line or b"\\uD" in line:  # UTF-8 itself has no surrogates: only an escape can bring one
        check_row_characters(where, row)
    return row


def _other_format(line: bytes) -> str:
    """What the file seems to be, by a line that is no JSON object."""
    text = line.strip()
    if text.startswith(b"["):
        return "; this looks like one list: write each of its objects on a line of its own"
    if b"," in text and text[:1] not in b'{["':
        return "; this looks like CSV: docs/bring-your-own.md has the command that converts it"
    return ""


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> Row:
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise ValueError(f"the key '{name}' stands there {times} times")
    return dict(pairs)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _read_id(where: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise UsageError(f"{where}: column 'id' is {shown(value)}; wanted text or a whole number")
    return str(value)
