"""Schedulers on hand-made jobs."""

from __future__ import annotations

import pytest

from podsrl.errors import UsageError
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.lengths import LengthRegression
from podsrl.generate.schedule.preempting import Dynamic
from podsrl.generate.schedule.scheduler import Limits, make_scheduler


def jobs_of(count: int, prompt_length: int = 4) -> list[Job]:
    return [Job("a", i, prompt_length=prompt_length, max_new_tokens=64, order=i) for i in range(count)]


def running_jobs(rows: list[int], prompt_length: int = 4) -> list[Job]:
    """Jobs that have made so many tokens, in order of arrival."""
    jobs = jobs_of(len(rows), prompt_length)
    for job, num_tokens in zip(jobs, rows, strict=True):
        job.num_tokens = num_tokens
    return jobs


def test_full_without_a_slot_a_job_is_refused() -> None:
    scheduler = make_scheduler("full", Limits(num_slots=4))
    scheduler.submit(jobs_of(5))
    with pytest.raises(UsageError, match="5 rollouts at once, but num_slots = 4"):
        scheduler.admit([])


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


def test_a_preempted_job_comes_back_to_its_place_in_the_queue() -> None:
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


def test_dynamic_starts_what_fits_beside_the_longest_row_with_headroom() -> None:
    jobs = jobs_of(9, prompt_length=10)
    scheduler = Dynamic(Limits(num_slots=9, num_tokens=60), headroom=0.5)
    scheduler.submit(jobs)
    assert scheduler.admit([]) == jobs[:4]  # four rows of 15 tokens
    assert scheduler.admit(running_jobs([10])) == [jobs[4]]  # beside a row of 20: two rows of 30


def test_dynamic_keeps_to_its_slots_where_memory_has_room() -> None:
    scheduler = make_scheduler("dynamic", Limits(num_slots=3))
    scheduler.submit(jobs_of(9))
    assert len(scheduler.admit(running_jobs([1]))) == 2


def test_dynamic_starts_a_lone_job_whatever_its_size() -> None:
    jobs = jobs_of(2, prompt_length=100)
    scheduler = make_scheduler("dynamic", Limits(num_slots=2, num_tokens=100))
    scheduler.submit(jobs)
    assert scheduler.admit([]) == jobs[:1]


def test_dynamic_preempts_the_last_of_its_order_until_the_rest_fits() -> None:
    running = running_jobs([16, 1, 6, 2])  # rows of 20, 5, 10 and 6 tokens
    limits = Limits(num_slots=4, num_tokens=60)
    assert make_scheduler("dynamic", limits).preempt(running) == [running[3]]
    for job, predicted in zip(running, (17, 60, 10, 63), strict=True):
        job.predicted = predicted
    assert make_scheduler("dynamic+ljf", limits).preempt(running) == [running[0]]  # without it the longest row has 10
    assert make_scheduler("dynamic+sjf", limits).preempt(running) == [running[3]]
    assert make_scheduler("dynamic", Limits(num_slots=4, num_tokens=80)).preempt(running) == []


def test_dynamic_never_preempts_the_only_row() -> None:
    assert make_scheduler("dynamic", Limits(num_slots=1, num_tokens=2)).preempt(running_jobs([5])) == []


def test_probed_jobs_step_aside_for_those_that_are_not() -> None:
    jobs = jobs_of(3)
    scheduler = make_scheduler("probed+ljf", Limits(num_slots=2), LengthRegression(probe_at=1))
    scheduler.submit(jobs)
    running = scheduler.admit([])
    assert running == jobs[:2]
    for job, predicted in zip(running, (9, 30), strict=True):
        job.num_tokens, job.predicted = 1, predicted
    assert scheduler.preempt(running) == [jobs[0]]  # one waits unprobed, so one goes
    scheduler.submit([jobs[0]])
    assert scheduler.admit([jobs[1]]) == [jobs[2]]
    jobs[2].num_tokens = 1
    assert scheduler.preempt([jobs[1], jobs[2]]) == []  # all are probed: they run on
    assert scheduler.admit([jobs[1]]) == [jobs[0]]


def test_probed_without_tokens_to_look_at_is_refused() -> None:
    with pytest.raises(UsageError, match="probe_at = None"):
        make_scheduler("probed", Limits(num_slots=1), LengthRegression())


def test_a_negative_headroom_is_refused() -> None:
    with pytest.raises(UsageError, match="headroom = -1"):
        Dynamic(Limits(num_slots=1), headroom=-1)
