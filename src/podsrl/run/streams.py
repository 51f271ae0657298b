"""Named random streams. Each is a function of (seed, name, step), so a checkpoint needs no generator state at all.

    data        which questions, in which order (tasks.stream.Stream keeps only a position)
    sampling    the engine's seed; with request id, rollout index and position it gives every number of generation
    selection   the random rule's draws
    update      dropout, and whatever a user's own reward or rule draws from a global generator (Python, numpy, torch)

The same seed, name and step give the same numbers on every machine.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch


def derive(seed: int, name: str, step: int = 0) -> int:
    """The seed of stream `name` at `step`: 63 bits.

    Example:
        >>> derive(0, "data") == derive(0, "data") != derive(0, "selection")
        True
    """
    digest = hashlib.blake2b(f"{seed}/{name}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_globals(seed: int, step: int, name: str = "update", rank: int = 0) -> None:
    """Reset the global generators at the start of a step or evaluation: code which uses them resumes exactly.

    Processes that share a run have different rows, and so a stream each.
    """
    value = derive(seed, f"{name}{rank or ''}", step)
    random.seed(value)
    np.random.seed(value % 2**32)
    torch.manual_seed(value)


def selection_generator(seed: int, step: int) -> torch.Generator:
    """The random rule's generator at one step."""
    return torch.Generator().manual_seed(derive(seed, "selection", step))
