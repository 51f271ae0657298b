"""The errors a user can meet. Each message names the option, what it got, what it wanted and the cure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""All but tab and the ends of lines."""
_NO_MEMORY = ("DefaultCPUAllocator", "out of memory", "Cannot allocate memory", "std::bad_alloc")
"""Texts in the RuntimeErrors and OSErrors of torch and of the system where memory has run out."""


class PodsError(Exception):
    """Base of every error raised on purpose; a command and a notebook print it in one line, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints."""
        return [f"{type(self).__name__}: {one_line(str(self))}"]


class UsageError(PodsError, ValueError):
    """Bad input from the user: an option, a config key, a file, a model folder. The command line exits with 2."""


class UnavailableError(UsageError):
    """What a config names is not to be had here and now (no network, no such package or GPU); elsewhere it may be."""


class RewardError(UsageError):
    """A reward function that breaks its contract for a whole batch (wrong length or type), not for one rollout."""


class CheckpointError(PodsError):
    """A checkpoint that is missing, truncated or altered. The message names the file."""


class LostGenerator(PodsError):
    """A generator's process, actor, server or cluster has ended, or does not answer. The message says how.

    A pool makes it anew (`podsrl.scale.generators.pool`), unless it `is_final`: there is no place for another. It may
    be away for `retry_seconds` before that.
    """

    def __init__(self, message: str, *, is_final: bool = False, retry_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.is_final, self.retry_seconds = is_final, retry_seconds


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine, or its GPU, has refused memory.

    Example:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("mat1 and mat2 cannot be multiplied"))
        (True, False)
    """
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY)


def nearest(name: str, known: Iterable[str]) -> str:
    """Say what `name` was probably meant to be.

    Args:
        name: what the user wrote.
        known: the names that exist.

    Returns:
        `" Did you mean 'x'?"` for a near miss, else `" Known: a, b, c."`.

    Example:
        >>> nearest("max_varianse", ["max_variance", "random"])
        " Did you mean 'max_variance'?"
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else f" Known: {', '.join(names)}."


def short(value: object, length: int = 120) -> str:
    """A value as Python writes it, at most so many characters of it, for a message.

    Example:
        >>> short("abcdefghij", 7)
        "'ab…ij'"
    """
    try:
        return cut(repr(value), length)
    except Exception:  # a number of thousands of digits; a list in a list …; an object of a user's own
        return f"<{type(value).__name__}>"


def printable(text: str) -> str:
    """A text whose control characters are written out: in one that came from a file they would steer the terminal.

    Example:
        >>> printable("a\\x1b[2Jb\\n")
        'a\\\\x1b[2Jb\\n'
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def one_line(message: str, length: int = 1000) -> str:
    """A message without line breaks; of what is too long, the beginning and the end, where the cure stands.

    Control characters are written out, as by `printable`.

    Example:
        >>> one_line("too   long: " + 400 * "x" + " lower it", 20)
        'too long: … lower it'
    """
    return cut(" ".join(cut(word, 300) for word in printable(message).split()), length)


def cut(text: str, length: int = 240) -> str:
    """At most so many characters: of a longer text, both ends.

    Example:
        >>> cut("a-very-long-name-of-a-run", 11)
        'a-ver…a-run'
    """
    if len(text) <= length:
        return text
    end = (length - 1) // 2
    return f"{text[: length - 1 - end]}…{text[len(text) - end :]}"
