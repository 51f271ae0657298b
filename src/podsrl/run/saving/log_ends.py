"""The lines of a run's logs: which are whole, and whether a log still holds what a checkpoint remembers of it.

A log is lost from where it ends too early, where a line is no JSON object, or where a line is of a later step than the
checkpoint's: then other bytes than the remembered ones stand there. So they do where no later step follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from podsrl.lib.logs import parse_line


def find_loss(path: Path, size: int, step: int) -> str | None:
    """Why a log, which may be gone, does not hold what the checkpoint of a step remembers; None where it does.

    `size` are the bytes that it had when the checkpoint was made.
    """
    held = path.stat().st_size if path.exists() else 0
    if held < size:
        return f"{path} has {held:,} bytes, and had {size:,}"
    for number, line in enumerate(_lines(path, size), start=1):
        if not _is_whole(line, step):
            return f"line {number} of {path} is broken, or of a step after {step}"
    if held > size and (behind := _step_behind(path, size)) is not None and behind <= step:
        return f"{path} goes on with step {behind} behind the {size:,} bytes that it had at step {step}"
    return None


@dataclass(slots=True)
class Remembered:
    """What a run's metrics say of where it stood; None where they do not."""

    train_seconds: float | None = None
    """At a step."""
    last_eval_step: int = -1
    has_note: bool = False
    """Whether lines were lost earlier, so that not all that happened is in them."""


def remembered(path: Path, size: int, step: int) -> Remembered:
    """Read the first `size` bytes of a run's metrics."""
    found = Remembered()
    for line in _lines(path, size):
        value = parse_line(line) or {}
        found.has_note |= "note" in value
        if "eval/accuracy" in value:
            found.last_eval_step = value.get("step", -1)
        if value.get("step") == step and "note" not in value:
            found.train_seconds = value.get("seconds/train_elapsed")
    return found


def _step_behind(path: Path, size: int) -> int | None:
    """Step of the first whole line behind the first `size` bytes that a training step wrote."""
    with path.open("rb") as file:
        file.seek(size)
        for line in file:
            value = parse_line(line)
            if value is None:
                return None
            if "note" not in value and "eval/accuracy" not in value:  # these a resume may write at the same step
                step = value.get("step")
                return step if isinstance(step, int) else None
    return None


def whole_lines(path: Path, size: int, step: int) -> str:
    """What is still to be used of a log: the whole lines up to a checkpoint's size and step.

    A note on an earlier loss is left out, since it was written after the checkpoint and the resume writes its own.
    """
    kept = (line for line in _lines(path, size) if _is_whole(line, step))
    return b"".join(line for line in kept if "note" not in (parse_line(line) or {})).decode()


def _lines(path: Path, size: int) -> Iterator[bytes]:
    """Lines of the first `size` bytes, each with its newline; the last may lack it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        while line := file.readline(size - file.tell()):
            yield line


def _is_whole(line: bytes, step: int) -> bool:
    value = parse_line(line) if line.endswith(b"\n") else None
    return value is not None and isinstance(value.get("step"), int) and value["step"] <= step
