"""What a part remembers comes back as it was, or is an error when it is saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from podsrl.errors import UsageError
from podsrl.lib.part_states import MAX_BYTES, split_states, whole_states


@pytest.mark.parametrize(
    "array",
    [np.array(3.0), np.zeros((0, 3)), np.arange(3, dtype=">i4"), np.arange(6).reshape(2, 3).T, np.zeros(2, "?")],
)
def test_arrays_come_back_with_their_shape_and_numbers(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    values, arrays = split_states({"mine": {"a/b": array, "seen": [1, 0.5, "x", None]}})
    save_file(arrays, tmp_path / "parts")
    found = whole_states(json.loads(json.dumps(values)), load_file(tmp_path / "parts"))["mine"]
    assert found["seen"] == [1, 0.5, "x", None]
    assert found["a/b"].shape == array.shape and np.array_equal(found["a/b"], array)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": np.zeros(2, np.longdouble)}, "'a' is an array of .*; wanted one of numbers of at most 8 bytes"),
        ({"a": np.ma.masked_array([1, 2], [True, False])}, "'a' is a MaskedArray that JSON cannot give back"),
        *(({"key": value}, "'key' is a") for value in ((1, 2), {1: 2}, object(), float("nan"), np.array(["text"]))),
        ([1], "returned"),
        ({"\ud800": 1}, "the key .* is not UTF-8"),
        ({"a": "x" * MAX_BYTES}, "bytes of JSON; wanted at most"),
    ],
)
def test_what_would_not_come_back_is_an_error(state: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^state\(\) of 'mine'.*{message}"):
        split_states({"mine": state})
