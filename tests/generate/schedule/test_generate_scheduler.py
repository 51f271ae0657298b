"""Schedulers on hand-made jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loops import each
from podsrl.errors import UsageError
from podsrl.generate.schedule.continuous import Dynamic
from podsrl.generate.schedule.job import Job, Limits, breadth, fifo
from podsrl.generate.schedule.scheduler import make_scheduler


def jobs_of(count: int, prompt_length: int = 4) -> list[Job]:
    return [Job("a", i, prompt_length=prompt_length, max_new_tokens=64, order=i) for i in range(count)]


def running_jobs(rows: list[int], prompt_length: int = 4) -> list[Job]:
    """Jobs that have made so many tokens, in order of arrival."""
    jobs = jobs_of(len(rows), prompt_length)
    for job, num_tokens in zip(jobs, rows, strict=True):
        job.num_tokens = num_tokens
    return jobs


def test_fifo_goes_by_arrival_and_breadth_lets_all_groups_grow_alike() -> None:
    jobs = [Job(name, i, 4, 64, order=2 * place + i) for place, name in enumerate("ab") for i in range(2)]
    assert fifo(jobs[::-1]) == jobs
    assert breadth(jobs[::-1]) == [jobs[0], jobs[2], jobs[1], jobs[3]]


def test_continuous_refills_every_free_slot_in_order_of_arrival() -> None:
    jobs = jobs_of(5)
    scheduler = make_scheduler("continuous", Limits(num_slots=3))
    scheduler.submit(jobs[::-1])
    assert scheduler.admit([]) == jobs[:3]
    assert scheduler.admit([jobs[0], jobs[2]]) == [jobs[3]]
    assert scheduler.admit([jobs[0], jobs[2], jobs[3]]) == []
    assert scheduler.num_pending == 1


def test_a_preempted_job_comes_back_to_its_place_in_the_queue() -> None:
    jobs = jobs_of(4)
    scheduler = make_scheduler("continuous", Limits(num_slots=2))
    scheduler.submit(jobs)
    first, second = scheduler.admit([])
    scheduler.submit([second])
    assert scheduler.admit([first]) == [second]


def test_an_object_is_passed_through() -> None:
    scheduler = make_scheduler("continuous", Limits(num_slots=1))
    assert make_scheduler(scheduler, Limits(num_slots=2)) is scheduler


def test_dynamic_starts_what_fits_beside_the_longest_row_with_headroom() -> None:
    jobs = jobs_of(9, prompt_length=10)
    scheduler = Dynamic(Limits(num_slots=9, num_tokens=60), headroom=0.5)
    scheduler.submit(jobs)
    assert scheduler.admit([]) == jobs[:4]  # four rows of 15 tokens
    assert scheduler.admit(running_jobs([10])) == [jobs[4]]  # beside a row of 20: two rows of 30


def test_dynamic_preempts_the_last_of_its_order_until_the_rest_fits() -> None:
    running = running_jobs([16, 1, 6, 2])  # rows of 20, 5, 10 and 6 tokens
    limits = Limits(num_slots=4, num_tokens=60)
    assert make_scheduler("dynamic", limits).preempt(running) == [running[3]]
    by_tokens = Dynamic(limits, lambda jobs: sorted(jobs, key=lambda job: job.num_tokens))
    assert by_tokens.preempt(running) == [running[0]]  # without it the longest row has 10
    assert make_scheduler("dynamic", Limits(num_slots=4, num_tokens=80)).preempt(running) == []


def test_dynamic_never_preempts_the_only_row() -> None:
    assert make_scheduler("dynamic", Limits(num_slots=1, num_tokens=2)).preempt(running_jobs([5])) == []


@each(
    ("make", "named"),
    [
        (lambda: make_scheduler("continous", Limits(num_slots=1)), "Did you mean 'continuous'"),
        (lambda: make_scheduler("micro", Limits(num_slots=1)), "no scheduler 'micro'. Known: continuous, dynamic"),
        (lambda: make_scheduler("continuous+ljf", Limits(num_slots=1)), "no refill order 'ljf'. Known: breadth, fifo"),
        (lambda: make_scheduler("dynamic+bredth", Limits(num_slots=1)), "Did you mean 'breadth'"),
        (lambda: make_scheduler("", Limits(num_slots=1)), "Known: continuous"),
        (lambda: Limits(num_slots=0), "num_slots = 0: wanted at least 1"),
        (lambda: Limits(num_slots=1, num_tokens=0), "num_tokens = 0: wanted at least 1"),
        (lambda: Dynamic(Limits(num_slots=1), headroom=-1), "headroom = -1"),
    ],
)
def test_what_is_wrong_with_a_scheduler_is_named(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        make()
