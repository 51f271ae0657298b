"""What parts remember, for a checkpoint: plain JSON in state.json, arrays in parts.safetensors. Nothing is pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from podsrl.errors import UsageError, short

MAX_BYTES = 4 << 20
"""Most JSON of one part: a larger state.json would not be read again."""

Arrays = dict[str, np.ndarray[Any, Any]]


def split_states(states: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, dict[str, Any]], Arrays]:
    """Separate plain values from arrays.

    Args:
        states: part's name -> its state: text keys -> plain JSON values or numpy arrays.

    Returns:
        The states with their plain values alone, and the arrays by "part/key".

    Raises:
        UsageError: a state of another form.

    Example:
        >>> values, arrays = split_states({"mine": {"seen": 3, "rate": np.array([0.5])}})
        >>> values, list(arrays)
        ({'mine': {'seen': 3}}, ['mine/rate'])
        >>> whole_states(values, arrays)["mine"]["rate"].tolist()
        [0.5]
    """
    values: dict[str, dict[str, Any]] = {}
    arrays: Arrays = {}
    for part, state in states.items():
        if not isinstance(state, Mapping) or not all(isinstance(key, str) for key in state):
            raise UsageError(f"state() of {part!r} returned {short(state)}; wanted a dict with text keys")
        values[part] = {}
        for key, value in state.items():
            if not _is_text(key):
                raise UsageError(f"state() of {part!r}: the key {short(key)} is not UTF-8; choose another")
            if type(value) is np.ndarray:  # a subclass may hold more than its numbers, such as a mask
                arrays[f"{part}/{key}"] = _plain(value, part, key)
            elif _is_json(value):
                values[part][key] = value
            else:
                raise UsageError(
                    f"state() of {part!r}: {key!r} is a {type(value).__name__} that JSON cannot give back unchanged; "
                    "wanted numbers, texts, lists and dicts with text keys, a numpy array, or a tuple of groups"
                )
        if (size := len(json.dumps(values[part], indent=1))) > MAX_BYTES:
            raise UsageError(
                f"state() of {part!r} has {size:,} bytes of JSON; wanted at most {MAX_BYTES:,}: hold numbers in arrays"
            )
    return values, arrays


def whole_states(values: Mapping[str, Mapping[str, Any]], arrays: Arrays) -> dict[str, dict[str, Any]]:
    """Put together what `split_states` separated."""
    states = {part: dict(state) for part, state in values.items()}
    for name, array in arrays.items():
        part, _, key = name.partition("/")
        states.setdefault(part, {})[key] = array
    return states


def _plain(array: np.ndarray[Any, Any], part: str, key: str) -> np.ndarray[Any, Any]:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        wanted = "wanted one of numbers of at most 8 bytes"
        raise UsageError(f"state() of {part!r}: {key!r} is an array of {array.dtype}; {wanted}")
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")  # a copy: the part goes on changing its own


def _is_text(key: str) -> bool:
    try:
        return bool(key.encode()) or not key
    except UnicodeEncodeError:
        return False


def _is_json(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError, RecursionError):
        return False
