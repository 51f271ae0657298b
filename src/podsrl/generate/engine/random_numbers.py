"""Random numbers that depend on (seed, group's id, rollout index, position) and on nothing else.

So a rollout's tokens do not depend on its batch, its slot or the order of work, and a resumed run needs no generator
state: the numbers are a hash of where they are used (a counter-based generator, Salmon et al. 2011, here with the
SplitMix64 finaliser of Steele et al. 2014).

    request_key(seed, id)  ->  row_keys(keys, indices)  ->  uniforms_at(row_keys, positions)
     once per request          once per rollout             every step
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from podsrl.lib.seeds import hash_bits

Keys = npt.NDArray[np.uint64]
Integers = Sequence[int] | npt.NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_UNUSED_BITS = np.uint64(11)
"""A float64 holds 53 of the 64 bits."""


def request_key(seed: int, request_id: str) -> np.uint64:
    """64 bits for a group's id; any text.

    Example:
        >>> len({int(request_key(seed, name)) for seed, name in [(0, "a"), (0, "a"), (1, "a"), (0, "b")]})
        3
    """
    return np.uint64(hash_bits(f"{seed}/{request_id}".encode()))


def row_keys(keys: Sequence[np.uint64] | Keys, indices: Integers) -> Keys:
    """[B] uint64 for B rollouts, from the keys of their requests and their indices, 0 or more.

    Example:
        >>> key = request_key(0, "a")
        >>> len(set(row_keys([key, key, key], [0, 1, 1]).tolist()))
        2
    """
    return _mix(np.asarray(keys, dtype=np.uint64) + _mix(np.asarray(indices, dtype=np.uint64) + _GOLDEN))


def uniforms_at(keys: Keys, positions: Integers) -> npt.NDArray[np.float64]:
    """[B] float64 in [0, 1), multiples of 2**-53: one uniform number for each rollout's number of new tokens [B].

    Example:
        >>> keys = row_keys([request_key(0, "a"), request_key(0, "b")], [3, 3])
        >>> bool(uniforms_at(keys, [5, 9])[1] == uniforms_at(keys[1:], [9])[0])
        True
    """
    counters = (np.asarray(positions, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    return (_mix(keys + counters) >> _UNUSED_BITS).astype(np.float64) * 2.0**-53


def _mix(x: Keys) -> Keys:
    x = (x ^ (x >> _SHIFTS[0])) * _MULTIPLIERS[0]
    x = (x ^ (x >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return x ^ (x >> _SHIFTS[2])
