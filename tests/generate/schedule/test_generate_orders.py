"""Refill orders, and jobs as they see them."""

from __future__ import annotations

import pytest

from podsrl.generate.schedule.job import Job, Order
from podsrl.generate.schedule.orders import ORDERS, breadth, fifo, grouped, ljf, sjf
from podsrl.generate.schedule.partition import partition


def jobs_of(predicted: list[float | None], num_tokens: list[int] | None = None) -> list[Job]:
    made = num_tokens or [0] * len(predicted)
    return [
        Job("a", i, prompt_length=4, max_new_tokens=64, order=i, num_tokens=n, predicted=p)
        for i, (p, n) in enumerate(zip(predicted, made, strict=True))
    ]


def indices(order: Order, jobs: list[Job], num_slots: int = 2) -> list[int]:
    return [job.index for job in order(jobs, num_slots)]


def test_a_row_holds_the_prompt_and_what_was_made() -> None:
    assert Job("a", 0, prompt_length=10, max_new_tokens=64, order=0, num_tokens=3).row_length == 13


@pytest.mark.parametrize(
    ("predicted", "num_tokens", "remaining"),
    [(20.0, 3, 17.0), (None, 4, 60.0), (500.0, 0, 64.0), (5.0, 9, 1.0)],
)
def test_what_remains_is_at_least_one_token_and_at_most_the_limit(
    predicted: float | None, num_tokens: int, remaining: float
) -> None:
    assert jobs_of([predicted], [num_tokens])[0].remaining == remaining


def test_fifo_goes_by_arrival() -> None:
    assert indices(fifo, jobs_of([3, 9, 5])[::-1]) == [0, 1, 2]


def test_breadth_lets_all_groups_grow_alike() -> None:
    jobs = [Job(name, i, 4, 64, order=3 * place + i) for place, name in enumerate("ab") for i in range(3)]
    assert [(job.request_id, job.index) for job in breadth(jobs[::-1], 2)] == [
        ("a", 0),
        ("b", 0),
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("b", 2),
    ]


def test_sjf_and_ljf_go_by_what_remains_not_by_the_total() -> None:
    jobs = jobs_of([30, 20, 25], [20, 0, 0])
    assert indices(sjf, jobs) == [0, 1, 2]
    assert indices(ljf, jobs) == [2, 1, 0]


@pytest.mark.parametrize("name", ORDERS)
def test_ties_go_by_arrival(name: str) -> None:
    assert indices(ORDERS[name], jobs_of([7, 7, 7])[::-1], num_slots=3) == [0, 1, 2]


def test_grouped_starts_jobs_when_the_plan_says_so() -> None:
    # the plan: {6, 4} on one slot from 0 and 6, {5, 3, 2} on the other from 0, 5 and 8
    assert indices(grouped, jobs_of([2, 3, 4, 5, 6])) == [4, 3, 1, 2, 0]
    assert sorted(sorted(slot) for slot in partition([2, 3, 4, 5, 6], 2)) == [[0, 1, 3], [2, 4]]


@pytest.mark.parametrize("num_slots", [4, 1 << 31])
def test_grouped_with_a_slot_for_each_puts_the_longest_first(num_slots: int) -> None:
    assert indices(grouped, jobs_of([2, 9, 4]), num_slots) == [1, 2, 0]
    assert grouped([], num_slots) == []


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_keeps_every_job_and_leaves_its_input(name: str) -> None:
    jobs = jobs_of([5, None, 3, 3, 64])
    before = list(jobs)
    assert set(ORDERS[name](jobs, 2)) == set(before)
    assert jobs == before
