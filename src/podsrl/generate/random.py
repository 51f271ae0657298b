"""Random numbers that depend on (seed, request, rollout index, position) and on nothing else.

So a rollout's tokens do not depend on its batch, its slot or the order of work, and a resumed run needs no generator
state: the numbers are a hash of where they are used (a counter-based generator, Salmon et al. 2011, here with the
SplitMix64 finaliser of Steele et al. 2014).
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def uniforms(seed: int, request_ids: list[str], indices: list[int], num_positions: int) -> npt.NDArray[np.float64]:
    """One uniform number for every row and position.

    Args:
        seed: of the whole stream.
        request_ids: B ids, one a row.
        indices: B rollout indices, one a row.
        num_positions: T.

    Returns:
        [B, T] float64 in [0, 1), multiples of 2**-53.

    Example:
        >>> bool((uniforms(0, ["a"], [3], 2) == uniforms(0, ["b", "a"], [0, 3], 2)[1:]).all())
        True
    """
    keys = {request_id: _request_key(seed, request_id) for request_id in set(request_ids)}
    with np.errstate(over="ignore"):
        rows = np.array([keys[request_id] for request_id in request_ids], dtype=np.uint64)
        rows = _mix(rows + _mix(np.array(indices, dtype=np.uint64) + _GOLDEN))
        counters = np.arange(1, num_positions + 1, dtype=np.uint64) * _GOLDEN
        bits = _mix(rows[:, None] + counters[None, :])
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _request_key(seed: int, request_id: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _MULTIPLIERS[0]
    x = (x ^ (x >> np.uint64(27))) * _MULTIPLIERS[1]
    return x ^ (x >> np.uint64(31))
