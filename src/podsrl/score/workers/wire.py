"""How the main process and a reward worker talk: JSON, one value per line, over a socket of their own.

Nothing is pickled, so what a reward function writes to the socket cannot run code in the main process. Lines are UTF-8
in which lone surrogates survive, and floats keep every bit.

JSON's own values stand for themselves. An object with the key "$" stands for a value of another kind in a data set's
column: tuple, set, frozenset, bytes, date and time, Decimal, Fraction, complex, numpy's numbers and arrays, a huge
integer, a dictionary with keys that are not texts.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from podsrl.types import TokenMarkup

_READ_BYTES = 1 << 18
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # escapes would join two lone surrogates
_PLAIN = frozenset({str, bool, float, type(None)})
_MAX_BITS = 10_000
"""Python refuses to write integers of more than 4,300 digits."""


class Malformed(ValueError):
    """A line is not a valid message."""


class Unsendable(ValueError):
    """A value of a kind that cannot be sent; the message names the kind."""


def encode(value: Any) -> str:
    """Write JSON; the line end is not part of it."""
    return _encoder.encode(value)


def to_bytes(line: str) -> bytes:
    """Give what goes over the socket."""
    return f"{line}\n".encode("utf-8", "surrogatepass")


def decode(line: bytes) -> Any:
    """Read a line from the worker, which is not trusted. Malformed: it is not JSON; NaN and infinity are not either.

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
    """The main process's end of a socket pair. No call ever waits for the other end."""

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
        """Queue a line, and send what fits. OSError: the other end is closed."""
        self._out += to_bytes(line)
        self.flush()

    def flush(self) -> None:
        """Send what fits. OSError: the other end is closed."""
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


def to_json(value: Any) -> Any:
    """Turn a value into what JSON holds. Unsendable: there is no way.

    Example:
        >>> to_json({"level": 3, "span": (1, 2)})
        {'level': 3, 'span': {'$': 'tuple', 'v': [1, 2]}}
    """
    kind = type(value)
    if kind in _PLAIN or (kind is int and value.bit_length() <= _MAX_BITS):
        return value
    if isinstance(value, list):
        return _items(value)
    if isinstance(value, (dict, MappingProxyType)):
        return _mapping(value)
    name, content = _tagged(value)
    return {"$": name, "v": content}


def from_json(tagged: dict[str, Any]) -> Any:
    """Undo `to_json` in one object, whose own content is undone already: for `json.loads(object_hook=…)`.

    Example:
        >>> json.loads('{"at": {"$": "date", "v": "2026-01-31"}}', object_hook=from_json)["at"].day
        31
    """
    return _READERS[tagged["$"]](tagged["v"]) if "$" in tagged else tagged


def _mapping(value: Mapping[Any, Any]) -> Any:
    if all(type(key) is str for key in value) and "$" not in value:
        return {key: to_json(item) for key, item in value.items()}
    return {"$": "dict", "v": [[to_json(key), to_json(item)] for key, item in value.items()]}


def _tagged(value: Any) -> tuple[str, Any]:
    if isinstance(value, (np.generic, np.ndarray)):
        return "numpy", _numpy(value)
    kind = type(value)
    if kind not in _CODECS:
        raise Unsendable(f"it holds a {kind.__module__}.{kind.__qualname__}")
    return kind.__name__, _CODECS[kind][0](value)


def _items(value: Any) -> list[Any]:
    return [to_json(item) for item in value]


def _sorted_items(value: Any) -> list[Any]:
    return sorted(_items(value), key=json.dumps)  # the order does not depend on this process's hashes


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


def _numpy(value: Any) -> list[Any]:
    if value.dtype.hasobject or value.dtype.names is not None:
        raise Unsendable(f"it holds a numpy array of {value.dtype}")
    content = _base64(np.asarray(value).tobytes())
    return [value.dtype.str, list(value.shape), content, isinstance(value, np.generic)]


def _to_numpy(content: list[Any]) -> Any:
    dtype, shape, data, is_scalar = content
    array = np.frombuffer(base64.b64decode(data), dtype=dtype).reshape(shape).copy()
    return array[()] if is_scalar else array


_CODECS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (_items, tuple),
    set: (_sorted_items, set),
    frozenset: (_sorted_items, frozenset),
    bytes: (_base64, base64.b64decode),
    bytearray: (_base64, lambda text: bytearray(base64.b64decode(text))),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda value: [value.days, value.seconds, value.microseconds], lambda parts: timedelta(*parts)),
    Decimal: (str, Decimal),
    Fraction: (str, Fraction),
    complex: (lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
    int: (hex, lambda text: int(text, 16)),
    TokenMarkup: (str, TokenMarkup),
}
"""Kind -> how its content is written, and how it is read."""
_READERS = {kind.__name__: read for kind, (_, read) in _CODECS.items()} | {"numpy": _to_numpy, "dict": dict}
