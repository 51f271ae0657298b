"""Numbers that say what a question looks like, the same on every machine: what parts predict its difficulty from.

Its lengths (characters, words, digits; each as a logarithm) and its character n-grams, n = 2 and 3, hashed into buckets
(Weinberger et al. 2009), with every digit as a 0, so that questions that differ in their numbers alone look alike, but
for how long they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podsrl.types import Task

NUM_BUCKETS = 32
NUM_FEATURES = NUM_BUCKETS + 3
_MULTIPLIERS = (np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D))
"""Odd numbers without a pattern: the primes of xxHash."""


def features_of(tasks: Sequence[Task]) -> NDArray[np.float64]:
    """[len(tasks), NUM_FEATURES], each 0 or more; an n-gram block has the Euclidean length 1, or 0 where it is empty.

    Example:
        >>> seven, eight = (Task(id=str(n), prompt=f"What is {n} + 1?", answer="") for n in (7, 8))
        >>> bool((features_of([seven]) == features_of([eight])).all())
        True
    """
    texts = [text_of(task).encode(errors="replace") for task in tasks]
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    letters = np.frombuffer(b"".join(texts), dtype=np.uint8)
    rows = np.repeat(np.arange(len(texts)), sizes)
    is_digit = (letters >= ord("0")) & (letters <= ord("9"))
    hashed = np.zeros((len(texts), NUM_BUCKETS))
    if len(letters) >= 2:
        codes = np.where(is_digit, ord("0"), letters).astype(np.uint32)
        for n in (2, 3):
            hashed += _buckets(codes, rows, n, len(texts))
    length = np.linalg.norm(hashed, axis=1, keepdims=True)
    numbers = [
        np.bincount(rows, weights=kind, minlength=len(texts)) for kind in (letters >= 0, letters == 32, is_digit)
    ]
    return np.hstack([np.log1p(np.stack(numbers, axis=1)), hashed / np.where(length > 0, length, 1)])


def text_of(task: Task) -> str:
    """A prompt as one text; the messages of a chat one after the other."""
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n".join(str(message.get("content", "")) for message in task.prompt)


def _buckets(codes: NDArray[np.uint32], rows: NDArray[np.int64], n: int, num_rows: int) -> NDArray[np.float64]:
    """How many of a row's n-grams fall into each bucket."""
    if len(codes) < n:
        return np.zeros((num_rows, NUM_BUCKETS))
    last = len(codes) - n + 1
    mixed = np.zeros(last, dtype=np.uint32)
    for place in range(n):
        mixed = (mixed ^ codes[place : place + last]) * _MULTIPLIERS[place]  # modulo 2^32
        mixed ^= mixed >> np.uint32(15)
    is_whole = rows[:last] == rows[n - 1 :]
    places = rows[:last] * NUM_BUCKETS + mixed % np.uint32(NUM_BUCKETS)
    counts = np.bincount(places[is_whole], minlength=num_rows * NUM_BUCKETS)
    return counts.reshape(num_rows, NUM_BUCKETS).astype(np.float64)
