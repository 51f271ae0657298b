"""Messages between two processes, over a pair of sockets: a value as JSON, bytes, and perhaps a file descriptor.

Nothing is pickled, so what comes cannot run code here.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

_HEADER = struct.Struct("<?QQ")
"""Of a frame: whether a descriptor comes with it, and the bytes of its head and of its body."""
_READ_BYTES = 1 << 18
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # escapes would join two lone surrogates


class Malformed(ValueError):
    """What came is no valid message."""


class Frame(NamedTuple):
    """One message."""

    head: Any = None
    """What JSON holds; every text and float survives."""
    body: bytes = b""
    descriptor: int | None = None
    """A file descriptor that the receiver owns."""


class Channel:
    """One end of a pair of sockets. One thread may send and another receive.

    Args:
        max_bytes: of a message that comes in; a longer one is malformed. It may be changed at any time.
        takes_descriptors: otherwise those that come are closed.
    """

    def __init__(self, end: socket.socket, *, max_bytes: int = sys.maxsize, takes_descriptors: bool = False) -> None:
        end.setblocking(False)
        self.max_bytes, self._takes_descriptors = max_bytes, takes_descriptors
        self._end, self._in, self._out = end, bytearray(), bytearray()
        self._descriptors: deque[int] = deque()

    def fileno(self) -> int:
        return self._end.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._out)

    def put(self, head: Any = None, body: bytes = b"") -> None:
        """Queue a message, and send what fits, without waiting. OSError: the other end is closed."""
        self._queue(head, body, False)
        self.flush()

    def flush(self) -> None:
        """Send what fits, without waiting. OSError: the other end is closed."""
        try:
            while self._out:
                del self._out[: self._end.send(self._out)]
        except BlockingIOError:
            pass

    def send(
        self, head: Any = None, body: bytes = b"", descriptor: int | None = None, *, seconds: float | None = None
    ) -> None:
        """Send a message. OSError: the other end is closed; TimeoutError: it has not read in so many seconds."""
        deadline = _deadline(seconds)
        if descriptor is None:
            self.put(head, body)
        else:
            self._empty(deadline)
            self._wait(select.POLLOUT, deadline)
            self._queue(head, body, True)
            socket.send_fds(self._end, [self._out[:1]], [descriptor])
            del self._out[:1]
        self._empty(deadline)

    def read(self) -> Iterator[Frame]:
        """Give what has come in whole, without waiting; what is malformed does not spoil what comes before it.

        Raises:
            EOFError, OSError: the other end is closed.
            Malformed: what came is no message.
        """
        self._take_in()
        while (frame := self._next()) is not None:
            yield frame

    def receive(self, seconds: float | None = None) -> Frame | None:
        """Wait for a message; None: the other end is closed. TimeoutError, Malformed: as their names say."""
        deadline = _deadline(seconds)
        while (frame := self._next()) is None:
            self._wait(select.POLLIN, deadline)
            try:
                self._take_in()
            except (EOFError, ConnectionError):
                return None
        return frame

    def close(self) -> None:
        self._end.close()

    def _queue(self, head: Any, body: bytes, has_descriptor: bool) -> None:
        text = b"" if head is None else _encoder.encode(head).encode("utf-8", "surrogatepass")
        self._out += _HEADER.pack(has_descriptor, len(text), len(body)) + text
        self._out += body

    def _take_in(self) -> None:
        with suppress(BlockingIOError):
            if self._takes_descriptors:
                data, descriptors, _, _ = socket.recv_fds(self._end, _READ_BYTES, 1)
                for descriptor in descriptors:
                    os.set_inheritable(descriptor, False)
                self._descriptors += descriptors
            else:
                data = self._end.recv(_READ_BYTES)
            if not data:
                raise EOFError
            self._in += data

    def _next(self) -> Frame | None:
        if len(self._in) < _HEADER.size:
            return None
        has_descriptor, head_bytes, body_bytes = _HEADER.unpack_from(self._in)
        if head_bytes + body_bytes > self.max_bytes:
            raise Malformed(f"a message of over {self.max_bytes:,} bytes")
        start = _HEADER.size + head_bytes
        end = start + body_bytes
        if len(self._in) < end:
            return None
        text, body = self._in[_HEADER.size : start], bytes(self._in[start:end])
        del self._in[:end]
        try:
            head = json.loads(text.decode("utf-8", "surrogatepass")) if text else None
            return Frame(head, body, self._descriptors.popleft() if has_descriptor else None)
        except (ValueError, RecursionError, IndexError) as error:
            raise Malformed(f"no message: {type(error).__name__}") from error

    def _empty(self, deadline: float | None) -> None:
        while self._out:
            self._wait(select.POLLOUT, deadline)
            self.flush()

    def _wait(self, event: int, deadline: float | None) -> None:
        if self.fileno() < 0:
            raise ConnectionAbortedError("it is closed")
        poll = select.poll()
        poll.register(self._end, event)
        if not poll.poll(None if deadline is None else 1000 * max(0.0, deadline - time.monotonic())):
            raise TimeoutError


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds
