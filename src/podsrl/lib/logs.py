"""Files that other processes read while they are written: append-only logs of JSON lines, and whole files.

A log (`.jsonl`) holds one JSON object per line. A killed process may leave its last line torn.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from podsrl.errors import CheckpointError, UsageError, short

Json = dict[str, Any]
_SHOWN = 40
"""Characters of a broken line that a message shows."""
_TAIL_BYTES = 1 << 16
"""How much of a log's end is read first to find its last line."""


def is_log(path: Path) -> bool:
    """Whether a log is there. UsageError: what is there is no file; reading a pipe could wait forever."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is no file: remove it")
    return path.exists()


def append_line(log: Path, record: Mapping[str, Any]) -> None:
    """Add one line and flush it to the operating system: a killed process loses nothing that it wrote."""
    with log.open("a") as file:
        file.write(json.dumps(record) + "\n")


def parse_line(line: bytes) -> Json | None:
    """A line's object; None where it holds none.

    Example:
        >>> parse_line(b'{"step": 1}'), parse_line(b'{"ste')
        ({'step': 1}, None)
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def broken_line(log: Path, number: int, line: bytes) -> UsageError:
    """The error for a line that a reader cannot read; `number` counts from 1."""
    start = line[:_SHOWN].decode(errors="replace")
    return UsageError(
        f"{log}, line {number}: wanted a JSON object, got '{start}{'…' if len(line) > _SHOWN else ''}'; the log is "
        "damaged: restore the file"
    )


def read_log(log: Path) -> tuple[list[Json], int]:
    """All objects of a log, and how many lines a kill has torn: 0 or 1. UsageError: another line is no JSON object."""
    found = list(each_object(log))
    lines = [value for value in found if value is not None]
    return lines, len(found) - len(lines)


def each_object(log: Path) -> Iterator[Json | None]:
    """The objects of a log one after another, without holding more than one; None for a last line that a kill has torn.

    Raises:
        UsageError: another line is no JSON object.
    """
    with log.open("rb") as file:  # bytes: text files also break lines at characters inside strings
        for number, line in enumerate(file, start=1):
            is_whole = line.endswith(b"\n")
            if (value := parse_line(line)) is not None or (line.strip() and not is_whole):
                yield value
            elif line.strip():
                raise broken_line(log, number, line.removesuffix(b"\n"))
            if not is_whole:  # what a writer adds in this moment is the rest of this line
                return


def read_lines(log: Path) -> list[Json]:
    """All whole lines of a log; none where it does not exist. UsageError: a line, or a blank one, is no JSON object."""
    return LogTail(log).new_lines()


class LogTail:
    """Reads a growing log piece by piece: each call gives the whole lines that are new."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._last = path, 0, b""

    def is_cut(self) -> bool:
        """Whether the line that was read last is gone from its place, because a resume cut the log back."""
        if not is_log(self._path):
            return self._offset > 0
        with self._path.open("rb") as file:
            file.seek(self._offset - len(self._last))
            return file.read(len(self._last)) != self._last

    def new_lines(self, most_bytes: int = -1) -> list[Json]:
        """Lines written since the last call; a log that was cut back by a resume is read again from there.

        Args:
            most_bytes: about how much is read in one call, at least a line; -1: all.
        """
        if not is_log(self._path):
            return []
        with self._path.open("rb") as file:
            start = max(0, min(self._offset, file.seek(0, os.SEEK_END)) - 1)
            file.seek(start)
            text = file.read(most_bytes)
            while text.find(b"\n", 1) < 0 and (more := file.read(most_bytes)):  # byte 0 ends the line before
                text += more
        if start or self._offset:  # begin behind a newline: where the log was cut and grew again, this is another line
            behind = text.find(b"\n") + 1
            start, text = start + behind, text[behind:]
        lines = text.split(b"\n")[:-1]  # behind the last newline is what is still being written
        self._offset = start + sum(map(len, lines)) + len(lines)
        self._last = lines[-1] + b"\n" if lines else self._last
        return [self._object(line, start, i) for i, line in enumerate(lines)]

    def _object(self, line: bytes, start: int, i: int) -> Json:
        """Line `i` of those from byte `start` on."""
        value = parse_line(line)
        if value is None:
            with self._path.open("rb") as file:
                raise broken_line(self._path, file.read(start).count(b"\n") + i + 1, line)
        return value


def last_line(log: Path) -> Json | None:
    """The object of the last whole line, found from the end; None where there is none, or the line holds none."""
    if not is_log(log):
        return None
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        length = min(size, _TAIL_BYTES)
        while True:
            file.seek(size - length)
            before, *lines = file.read(length).rpartition(b"\n")[0].split(b"\n")
            if lines or length == size:
                return parse_line(lines[-1] if lines else before)
            length = min(size, 2 * length)


def read_object(file: Path) -> Json:
    """A whole file of JSON.

    Raises:
        CheckpointError: it cannot be read, or holds no object.
    """
    try:
        value = parse_line(file.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{file} is missing or damaged: {short(str(error))}") from None
    if value is None:
        raise CheckpointError(f"{file} is damaged: it holds no JSON object")
    return value


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside, force to disk, rename: a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # of a process that was killed
    with temporary.open("xb") as file:  # never through a link
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
