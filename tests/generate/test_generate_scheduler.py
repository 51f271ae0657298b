"""Schedulers on hand-made jobs."""

from __future__ import annotations

import pytest

from podsrl.errors import UsageError
from podsrl.generate.job import Job
from podsrl.generate.scheduler import Limits, make_scheduler


def jobs_of(count: int, prompt_length: int = 4) -> list[Job]:
    return [Job("a", i, prompt_length=prompt_length, max_new_tokens=64, order=i) for i in range(count)]


def test_full_starts_every_job_at_once() -> None:
    jobs = jobs_of(5)
    scheduler = make_scheduler("full", Limits(num_slots=5))
    scheduler.submit(jobs)
    assert scheduler.admit([]) == jobs
    assert scheduler.num_pending == 0


def test_micro_starts_a_round_only_when_the_last_has_ended() -> None:
    jobs = jobs_of(5)
    scheduler = make_scheduler("micro", Limits(num_slots=2))
    scheduler.submit(jobs)
    assert scheduler.admit([]) == jobs[:2]
    assert scheduler.admit(jobs[:1]) == []
    assert scheduler.admit([]) == jobs[2:4]
    assert scheduler.admit([]) == jobs[4:]


def test_continuous_refills_every_free_slot_in_order_of_arrival() -> None:
    jobs = jobs_of(5)
    scheduler = make_scheduler("continuous", Limits(num_slots=3))
    scheduler.submit(jobs[::-1])
    assert scheduler.admit([]) == jobs[:3]
    assert scheduler.admit([jobs[0], jobs[2]]) == [jobs[3]]
    assert scheduler.admit([jobs[0], jobs[2], jobs[3]]) == []
    assert scheduler.num_pending == 1


def test_an_evicted_job_comes_back_to_its_place_in_the_queue() -> None:
    jobs = jobs_of(4)
    scheduler = make_scheduler("continuous", Limits(num_slots=2))
    scheduler.submit(jobs)
    first, second = scheduler.admit([])
    scheduler.submit([second])
    assert scheduler.admit([first]) == [second]


def test_a_withdrawn_job_never_starts() -> None:
    jobs = jobs_of(3)
    scheduler = make_scheduler("micro", Limits(num_slots=3))
    scheduler.submit(jobs)
    scheduler.withdraw([jobs[1]])
    assert scheduler.num_pending == 2
    assert scheduler.admit([]) == [jobs[0], jobs[2]]


def test_an_object_is_passed_through() -> None:
    scheduler = make_scheduler("continuous", Limits(num_slots=1))
    assert make_scheduler(scheduler, Limits(num_slots=2)) is scheduler


@pytest.mark.parametrize(
    ("name", "words"),
    [("continous", "Did you mean 'continuous'"), ("micro+sfj", "Did you mean 'sjf'"), ("", "Known: continuous")],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_scheduler(name, Limits(num_slots=1))


@pytest.mark.parametrize("limits", [{"num_slots": 0}, {"num_slots": 1, "num_tokens": 0}])
def test_no_room_at_all_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="= 0: wanted at least 1"):
        Limits(**limits)
