"""The state of the global random generators, so that a call in another process draws what it would have drawn here."""

from __future__ import annotations

import base64
import random
import sys
from typing import Any

import numpy as np


def capture() -> dict[str, Any]:
    """Give the state of Python's and numpy's global generators, and of torch's where it is loaded, as JSON holds it."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "numpy": [name, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode()
        state["torch_seed"], state["torch_threads"] = torch.initial_seed(), torch.get_num_threads()
    return state


def restore(state: dict[str, Any]) -> None:
    """Go on from a state; torch's part is left where it is not loaded.

    Raises:
        TypeError, ValueError, KeyError, RuntimeError, OverflowError: the state is none.
    """
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        content = np.frombuffer(base64.b64decode(state["torch"]), dtype=np.uint8).copy()
        torch.set_rng_state(torch.from_numpy(content))


def restore_in_worker(state: dict[str, Any]) -> None:
    """As `restore`; and torch's GPU generators begin at the step's seed, its CPU threads are as many as there."""
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.manual_seed(state["torch_seed"])
        if torch.get_num_threads() != state["torch_threads"]:
            torch.set_num_threads(state["torch_threads"])
    restore(state)
