"""Zones: what is planned covers every row, reads little and lasts."""

from __future__ import annotations

import itertools

import numpy as np

from podsrl.generate.engine.forward.zones import Ints, Zones


def planned(lengths: Ints) -> tuple[Ints, Zones]:
    """The lengths after a fresh plan was carried out."""
    zones = Zones()
    first, second = zones.plan(lengths)
    lengths = lengths.copy()
    lengths[first], lengths[second] = lengths[second], lengths[first].copy()
    return lengths, zones


def tokens_read(lengths: Ints, zones: Zones) -> int:
    return sum(rows * length for rows, length in zones.at(lengths))


def test_long_rows_change_places_with_short_ones_before_the_cut() -> None:
    zones = Zones()
    first, second = zones.plan(np.array([9, 3, 8, 3, 3, 3]))
    assert first.tolist() == [2] and second.tolist() == [1]
    assert zones.at(np.array([9, 8, 3, 3, 3, 3])) == ((2, 9), (4, 3))


def test_no_order_and_no_cut_reads_less_than_the_plan() -> None:
    for case in itertools.product((1, 3, 4, 9), repeat=5):
        lengths, zones = planned(np.array(case))
        ordered = sorted(case, reverse=True)
        best = min(cut * ordered[0] + (5 - cut) * ordered[min(cut, 4)] for cut in range(6))
        whole = 5 * max(case)
        assert tokens_read(lengths, zones) == (best if best <= 0.85 * whole else whole), case


def test_zones_cover_all_rows_whatever_comes_after_the_plan() -> None:
    rng = np.random.default_rng(0)
    lengths, zones = planned(rng.integers(1, 100, 40))
    for num_rows in (1, 2, 7, 39, 40, 64):
        lengths = rng.integers(1, 100, num_rows)
        cut = zones.at(lengths)
        ends = np.cumsum([rows for rows, _ in cut])
        assert ends[-1] == num_rows
        for end, (rows, length) in zip(ends, cut, strict=True):
            assert length == lengths[end - rows : end].max()


def test_between_two_plans_rows_keep_their_places() -> None:
    zones = Zones()
    lengths = np.array([1, 50, 1, 1, 1, 1])
    assert [len(zones.plan(lengths)[0]) for _ in range(33)] == [1] + [0] * 15 + [1] + [0] * 15 + [1]


def test_a_steady_batch_reads_two_thirds_of_what_it_would_in_one_zone() -> None:
    rng = np.random.default_rng(0)
    zones, lengths, left = Zones(), rng.integers(16, 31, 128), rng.geometric(1 / 20, 128)
    read = whole = 0
    for step in range(300):
        first, second = zones.plan(lengths)
        for values in (lengths, left):
            values[first], values[second] = values[second], values[first].copy()
        if step >= 100:
            read += tokens_read(lengths, zones)
            whole += len(lengths) * int(lengths.max())
        lengths, left = lengths + 1, left - 1
        ended = np.flatnonzero(left == 0)
        lengths[ended], left[ended] = rng.integers(16, 31, len(ended)), rng.geometric(1 / 20, len(ended))
    assert read < 0.67 * whole
