"""What the main process and a reward worker send each other: JSON, in UTF-8 in which lone surrogates survive.

Nothing is pickled, so what a reward function writes to the socket cannot run code in the main process. Floats keep
every bit.

JSON's own values stand for themselves. An object with the key "$" stands for a value of another kind in a data set's
column: tuple, set, frozenset, bytes, date and time, Decimal, Fraction, complex, numpy's numbers and arrays, a huge
integer, a dictionary with keys that are not texts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from podsrl.lib.channel import Malformed
from podsrl.types import TokenMarkup


def _no_constant(name: str) -> float:
    raise ValueError(name)


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # escapes would join two lone surrogates
_decoder = json.JSONDecoder(parse_constant=_no_constant)
_PLAIN = frozenset({str, bool, float, type(None)})
_MAX_BITS = 10_000
"""Python refuses to write integers of more than 4,300 digits."""


class Unsendable(ValueError):
    """A value of a kind that cannot be sent; the message names the kind."""


def encode(value: Any) -> str:
    """Write JSON."""
    return _encoder.encode(value)


def to_bytes(text: str) -> bytes:
    """Give what goes over the socket."""
    return text.encode("utf-8", "surrogatepass")


def decode(body: bytes) -> Any:
    """Read what a worker sent, which is not trusted. Malformed: it is not JSON; NaN and infinity are not either.

    Example:
        >>> decode(b"[1, 0.5]")
        [1, 0.5]
    """
    try:
        return _decoder.decode(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {type(error).__name__}") from error


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
