"""Values of a data set's columns as JSON, on their way to a reward worker.

JSON's own values stand for themselves. An object with the key "$" stands for a value of another kind: tuple, set,
frozenset, bytes, date and time, Decimal, Fraction, complex, numpy's numbers and arrays, a huge integer, a dictionary
with keys that are not texts.
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

from podsrl.types import TokenMarkup

_PLAIN = frozenset({str, bool, float, type(None)})
_MAX_BITS = 10_000
"""Python refuses to write integers of more than 4,300 digits."""


class Unsendable(ValueError):
    """A value of a kind that cannot be sent; the message names the kind."""


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


def from_json(value: Any) -> Any:
    """Undo `to_json`.

    Example:
        >>> from_json({"at": {"$": "date", "v": "2026-01-31"}})["at"].day
        31
    """
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    items = {key: from_json(item) for key, item in value.items()}
    return _READERS[items["$"]](items["v"]) if "$" in items else items


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
