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
    """What was read is no message."""


class Unsendable(ValueError):
    """A value of a kind that cannot be sent; the message names the kind."""


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


def to_json(value: Any) -> Any:
    """Turn a value into what JSON holds.

    Raises:
        Unsendable: there is no way.

    Example:
        >>> to_json({"level": 3, "span": (1, 2)})
        {'level': 3, 'span': {'$': 'tuple', 'v': [1, 2]}}
    """
    kind = type(value)
    if kind in _PLAIN or (kind is int and value.bit_length() <= _MAX_BITS):
        return value
    if isinstance(value, list):
        return [to_json(item) for item in value]
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
    kind = type(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return "numpy", _numpy(value)
    if kind is tuple:
        return "tuple", [to_json(item) for item in value]
    if kind in (set, frozenset):  # in an order of their own, that does not depend on this process's hashes
        return kind.__name__, sorted((to_json(item) for item in value), key=json.dumps)
    if kind in (bytes, bytearray):
        return kind.__name__, base64.b64encode(value).decode()
    if kind in (datetime, date, time):
        return kind.__name__, value.isoformat()
    if kind is timedelta:
        return "timedelta", [value.days, value.seconds, value.microseconds]
    if kind in (Decimal, Fraction):
        return kind.__name__, str(value)
    if kind is complex:
        return "complex", [value.real, value.imag]
    if kind is int:
        return "int", hex(value)
    if kind is TokenMarkup:
        return kind.__name__, str(value)
    raise Unsendable(f"it holds a {kind.__module__}.{kind.__qualname__}")


def _numpy(value: Any) -> list[Any]:
    if value.dtype.hasobject or value.dtype.names is not None:
        raise Unsendable(f"it holds a numpy array of {value.dtype}")
    content = base64.b64encode(np.asarray(value).tobytes()).decode()
    return [value.dtype.str, list(value.shape), content, isinstance(value, np.generic)]


def _to_numpy(content: list[Any]) -> Any:
    dtype, shape, data, is_scalar = content
    array = np.frombuffer(base64.b64decode(data), dtype=dtype).reshape(shape).copy()
    return array[()] if is_scalar else array


_READERS: dict[str, Callable[[Any], Any]] = {
    "numpy": _to_numpy,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "Decimal": Decimal,
    "Fraction": Fraction,
    "complex": lambda parts: complex(*parts),
    "int": lambda text: int(text, 16),
    "TokenMarkup": TokenMarkup,
    "dict": dict,
}
