"""Whole groups to processes by tokens, against brute force on small cases and Graham's bound on all."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from podsrl.lib.balance import longest_first

COSTS = st.lists(st.integers(0, 10_000), min_size=1, max_size=40)


def loads(costs: list[int], shares: list[list[int]]) -> list[int]:
    return [sum(costs[i] for i in share) for share in shares]


@given(COSTS, st.integers(1, 9))
def test_every_group_goes_to_one_process_the_costliest_first(costs: list[int], num_processes: int) -> None:
    shares = longest_first(costs, num_processes)
    assert len(shares) == num_processes
    assert sorted(itertools.chain(*shares)) == list(range(len(costs)))
    assert all(share == sorted(share, key=lambda i: (-costs[i], i)) for share in shares)


@given(COSTS, st.integers(1, 9))
def test_no_process_has_more_than_a_mean_share_and_one_group(costs: list[int], num_processes: int) -> None:
    """List scheduling's bound: the fullest was the emptiest before its last group."""
    fullest = max(loads(costs, longest_first(costs, num_processes)))
    assert fullest <= sum(costs) / num_processes + max(costs) * (1 - 1 / num_processes) + 1e-9


def test_small_cases_are_within_four_thirds_of_the_best_split_there_is() -> None:
    rng = random.Random(0)
    for _ in range(300):
        num_processes, num_groups = rng.randint(1, 3), rng.randint(1, 7)
        costs = [rng.choice((0, 1, rng.randint(1, 30), rng.randint(1, 1000))) for _ in range(num_groups)]
        best = min(
            max(
                sum(cost for cost, place in zip(costs, places, strict=True) if place == p) for p in range(num_processes)
            )
            for places in itertools.product(range(num_processes), repeat=num_groups)
        )
        found = max(loads(costs, longest_first(costs, num_processes)))
        assert found <= best * (4 / 3 - 1 / (3 * num_processes)) + 1e-9


def test_groups_without_cost_are_spread_evenly() -> None:
    assert longest_first([0, 0, 0, 0, 0], 2) == [[0, 2, 4], [1, 3]]
