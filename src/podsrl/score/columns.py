"""Values of a data set's columns as JSON and back, for processes that exchange no pickles.

JSON's own values stand for themselves. An object with the key "$" stands for another kind: tuple, set, frozenset,
bytes, date and time, Decimal, Fraction, complex, numpy's numbers and arrays, a huge integer, a dictionary with other
keys than texts.
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
    """A value of a kind that is not carried; the message names the kind."""


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
