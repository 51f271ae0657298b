"""Named random streams. Every random number is a function of (seed, stream, place): there is no state to save.

    data        the order of the training tasks (`tasks.stream.Stream` stores only a position)
    sampling    the engine's seed; with request id, rollout index and position it gives every number of generation
    selection   the random rule's draws
    update      dropout, and what a user's own reward or rule draws from a global generator (Python, numpy, torch)
    adapters    how each adapter begins

The same seed, stream and place give the same numbers on every machine. Nothing here loads torch by itself.
"""

from __future__ import annotations

import hashlib
import random
import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def hash_bits(content: bytes, num_bytes: int = 8) -> int:
    """A hash of so many bytes as a whole number.

    Example:
        >>> hash_bits(b"0/data/0") >> 1 == derive(0, "data")
        True
    """
    return int.from_bytes(hashlib.blake2b(content, digest_size=num_bytes).digest(), "little")


def derive(seed: int, stream: str, place: int | str = 0) -> int:
    """The seed of a stream at one place (a step, a module's name): 63 bits.

    Example:
        >>> derive(0, "data") == derive(0, "data") != derive(0, "selection")
        True
    """
    return hash_bits(f"{seed}/{stream}/{place}".encode()) >> 1


def set_global_seed(value: int) -> None:
    """Seed the generators of Python, numpy (its lowest 32 bits) and, where it is loaded, torch; below 2^63."""
    random.seed(value)
    np.random.seed(value % 2**32)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(value)


def seed_globals(seed: int, step: int, name: str = "update", rank: int = 0) -> None:
    """Reset the global generators at the start of a step or evaluation: code which uses them resumes exactly.

    Processes that share a run have different rows, and so each process has its own stream.
    """
    set_global_seed(derive(seed, f"{name}{rank or ''}", step))


def selection_generator(seed: int, step: int) -> torch.Generator:
    """The random rule's generator at one step."""
    import torch

    return torch.Generator().manual_seed(derive(seed, "selection", step))
