"""The global grouping against every partition and every subset of small cases."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from benchmarks.infinite_sampling.partition import fullest, lpt, makespan, partition
from podsrl.errors import UsageError


def least_makespan(lengths: list[float], num_slots: int) -> float:
    """Try every assignment."""
    return min(
        max(sum(n for n, s in zip(lengths, slots, strict=True) if s == slot) for slot in range(num_slots))
        for slots in product(range(num_slots), repeat=len(lengths))
    )


def random_lengths(draw: random.Random, most: int) -> list[float]:
    high = draw.choice([3, 20, 1000])
    return [draw.randint(1, high) * draw.choice([1, 1, 0.37]) for _ in range(draw.randint(1, most))]


def test_every_job_gets_exactly_one_slot() -> None:
    draw = random.Random(0)
    for _ in range(300):
        lengths, num_slots = random_lengths(draw, 40), draw.randint(1, 9)
        slots = partition(lengths, num_slots)
        assert len(slots) == num_slots
        assert sorted(place for slot in slots for place in slot) == list(range(len(lengths)))


def test_it_is_never_worse_than_longest_first_nor_better_than_possible() -> None:
    draw = random.Random(1)
    improved = 0
    for _ in range(150):
        lengths, num_slots = random_lengths(draw, 7), draw.randint(1, 3)
        found, first, least = (
            makespan(lengths, partition(lengths, num_slots)),
            makespan(lengths, lpt(lengths, num_slots)),
            least_makespan(lengths, num_slots),
        )
        assert least <= found + 1e-9 and found <= first
        assert first <= (4 / 3 - 1 / (3 * num_slots)) * least + 1e-9
        improved += found < first - 1e-9
    assert improved >= 5


def test_grahams_worst_case_for_longest_first_is_solved() -> None:
    lengths = [5, 5, 4, 4, 3, 3, 3]
    assert makespan(lengths, lpt(lengths, 3)) == 11
    assert makespan(lengths, partition(lengths, 3)) == 9


def test_many_jobs_come_within_two_percent_of_the_bound() -> None:
    draw = random.Random(2)
    for count in (32, 128):
        lengths = [max(20.0, draw.lognormvariate(4.7, 0.4)) for _ in range(count)]
        bound = max(max(lengths), sum(lengths) / (count // 4))
        assert makespan(lengths, partition(lengths, count // 4)) <= 1.02 * bound


def test_a_fullest_set_is_as_full_as_the_fullest_of_all_sets_within_epsilon() -> None:
    draw = random.Random(3)
    for _ in range(300):
        lengths, epsilon = random_lengths(draw, 9), draw.choice([0.2, 0.05, 0.01])
        capacity = draw.uniform(0, 1.1 * sum(lengths))
        places = fullest(lengths, capacity, epsilon)
        total = sum(lengths[place] for place in places)
        sums = (sum(chosen) for size in range(len(lengths) + 1) for chosen in combinations(lengths, size))
        best = max(value for value in sums if value <= capacity)
        assert len(set(places)) == len(places)
        assert best - epsilon * capacity <= total + 1e-9
        assert total <= (1 + epsilon) * capacity + 1e-9


def test_nothing_to_divide_leaves_empty_slots() -> None:
    assert partition([], 2) == [[], []]


@pytest.mark.parametrize(
    ("lengths", "num_slots", "epsilon"), [([1.0], 0, 0.1), ([0.0], 1, 0.1), ([1.0], 1, 0.0), ([1.0], 1, 1.0)]
)
def test_values_out_of_range_are_refused(lengths: list[float], num_slots: int, epsilon: float) -> None:
    with pytest.raises(UsageError, match="wanted lengths above 0"):
        partition(lengths, num_slots, epsilon)
