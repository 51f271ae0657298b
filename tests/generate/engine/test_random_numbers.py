"""Random numbers are a function of (seed, request, rollout, position) and behave as independent uniforms."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest

from podsrl.generate.engine.random_numbers import request_key, row_keys, uniforms_at

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def finalise(x: int) -> int:
    """SplitMix64's output function on plain integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def slow_uniform(seed: int, request_id: str, index: int, position: int) -> float:
    key = int.from_bytes(hashlib.blake2b(f"{seed}/{request_id}".encode(), digest_size=8).digest(), "little")
    row = finalise((key + finalise((index + GOLDEN) & MASK)) & MASK)
    return (finalise((row + (position + 1) * GOLDEN) & MASK) >> 11) / 2**53


def uniforms(seed: int, request_ids: list[str], indices: list[int], num_positions: int) -> npt.NDArray[np.float64]:
    """The first numbers of every rollout, [B, T], asked for step by step."""
    keys = row_keys([request_key(seed, request_id) for request_id in request_ids], indices)
    steps = [uniforms_at(keys, np.full(len(keys), t)) for t in range(num_positions)]
    return np.stack(steps, axis=1)


def test_the_finaliser_of_the_twin_gives_the_published_splitmix64_sequence_for_seed_1234567() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [finalise((1234567 + i * GOLDEN) & MASK) for i in (1, 2, 3, 4)] == published


def test_numbers_equal_a_twin_on_plain_integers_and_nothing_is_written_into_what_is_given() -> None:
    ids, indices, positions = ["a", "s12/0/7+5", "a", "é", "a"], [0, 3, 2**40, 1, 0], [3, 0, 2**20, 4, 4]
    wanted = [slow_uniform(9, *where) for where in zip(ids, indices, positions, strict=True)]
    keys, given = row_keys([request_key(9, i) for i in ids], indices), np.array(positions)
    before = keys.copy()
    assert uniforms_at(keys, positions).tolist() == uniforms_at(keys, given).tolist() == wanted
    assert (keys == before).all() and given.tolist() == positions


@pytest.mark.parametrize("axis", ["positions", "rollouts", "requests", "seeds"])
def test_numbers_along_every_axis_are_uniform_and_uncorrelated(axis: str) -> None:
    size = 20_000
    if axis == "positions":
        numbers = uniforms_at(row_keys([request_key(3, "a")] * size, [0] * size), np.arange(size))
    elif axis == "rollouts":
        numbers = uniforms(3, ["a"] * size, list(range(size)), 1)[:, 0]
    elif axis == "requests":
        numbers = uniforms(3, [f"r{i}" for i in range(size)], [0] * size, 1)[:, 0]
    else:
        numbers = np.array([uniforms(seed, ["a"], [0], 1)[0, 0] for seed in range(size // 10)])
    size = len(numbers)
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert abs(numbers.mean() - 1 / 2) < 4 * np.sqrt(1 / 12 / size)
    assert abs(numbers.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / size)  # the variance of (U - 1/2)^2 is 1/180
    for lag in (1, 2, 7):
        assert abs(np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]) < 4 / np.sqrt(size)
    counts = np.bincount((numbers * 64).astype(int), minlength=64)
    chi_square = ((counts - size / 64) ** 2 / (size / 64)).sum()
    assert 63 - 4 * np.sqrt(126) < chi_square < 63 + 5 * np.sqrt(126)
