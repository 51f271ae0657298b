"""How the main process and a reward worker talk: JSON, one value per line, over a socket of their own.

Nothing is pickled, so what a reward function writes to the socket cannot run code in the main process. Lines are UTF-8
in which lone surrogates survive, and floats keep every bit.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

_READ_BYTES = 1 << 18
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # escapes would join two lone surrogates


class Malformed(ValueError):
    """What was read is no message."""


def encode(value: Any) -> str:
    """Write JSON; the line end is not part of it."""
    return _encoder.encode(value)


def to_bytes(line: str) -> bytes:
    """Give what goes over the socket."""
    return f"{line}\n".encode("utf-8", "surrogatepass")


def decode(line: bytes) -> Any:
    """Read a line that the other side is not trusted with.

    Raises:
        Malformed: it is no JSON; NaN and infinity are none.

    Example:
        >>> decode(b"[1, 0.5]")
        [1, 0.5]
    """
    try:
        return json.loads(line.decode("utf-8", "surrogatepass"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {type(error).__name__}") from error


def _no_constant(name: str) -> float:
    raise ValueError(name)


class Lines:
    """The main process's end of the socket. No call ever waits for the other end.

    Args:
        end: of a socket pair.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end, self._out, self._in = end, bytearray(), bytearray()
        self.max_line_bytes = 1 << 16
        """A longer line is malformed."""

    def fileno(self) -> int:
        return self._end.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._out)

    def write(self, line: str) -> None:
        """Queue a line, and send what fits.

        Raises:
            OSError: the other end is closed.
        """
        self._out += to_bytes(line)
        self.flush()

    def flush(self) -> None:
        """Send what fits.

        Raises:
            OSError: the other end is closed.
        """
        try:
            while self._out:
                del self._out[: self._end.send(self._out)]
        except BlockingIOError:
            pass

    def read(self) -> Iterator[Any]:
        """Give the lines that have come in whole, one by one: what is malformed does not spoil those before it.

        Raises:
            EOFError, OSError: the other end is closed.
            Malformed: what came is no line of JSON.
        """
        try:
            data = self._end.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise EOFError
        self._in += data
        *lines, self._in = self._in.split(b"\n")
        for line in lines:
            self._check_length(line)
            yield decode(bytes(line))
        self._check_length(self._in)

    def _check_length(self, line: bytearray) -> None:
        if len(line) > self.max_line_bytes:
            raise Malformed(f"a line of over {self.max_line_bytes:,} bytes")

    def close(self) -> None:
        self._end.close()
