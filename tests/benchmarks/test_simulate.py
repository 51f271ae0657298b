"""The paper's schedules by hand; the simulator on them; and every scheduler on thousands of random ones."""

from __future__ import annotations

import random
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from benchmarks.infinite_sampling.paper import ORDERS, SCHEDULERS, Full, Micro, Probed, make_schedule
from benchmarks.infinite_sampling.partition import partition
from benchmarks.infinite_sampling.predict import KnownLengths, LengthRegression, remaining
from benchmarks.infinite_sampling.simulate import Simulation, Span, least_steps, simulate
from loops import each
from podsrl.errors import UsageError
from podsrl.generate.schedule.job import ORDERS as SHIPPED
from podsrl.generate.schedule.job import Job, Limits, fifo
from podsrl.generate.schedule.scheduler import make_scheduler

PAPERS = [f"{name}+{order}" for name in (*SCHEDULERS, "probed") for order in ("fifo", *ORDERS)]
NAMES = [*PAPERS, *(f"{name} ships+{order}" for name in ("continuous", "dynamic") for order in SHIPPED)]


def jobs_of(count: int, prompt_length: int = 4, max_new_tokens: int = 64) -> list[Job]:
    return [Job("a", i, prompt_length=prompt_length, max_new_tokens=max_new_tokens, order=i) for i in range(count)]


def run(name: str, lengths: list[int], num_slots: int, num_tokens: int | None = None) -> Simulation:
    """With true lengths known."""
    jobs = jobs_of(len(lengths))
    known = KnownLengths(dict(zip(jobs, lengths, strict=True)))
    return simulate(make_schedule(name, Limits(num_slots=num_slots, num_tokens=num_tokens), known), jobs, lengths)


def indices(order: str, lengths: list[int], made: list[int] | None = None, num_slots: int = 2) -> list[int]:
    """Of jobs of known lengths, in the order."""
    jobs = jobs_of(len(lengths))
    for job, num_tokens in zip(jobs, made or [0] * len(jobs), strict=True):
        job.num_tokens = num_tokens
    left = partial(remaining, KnownLengths(dict(zip(jobs, lengths, strict=True))))
    return [job.index for job in ORDERS[order](left, num_slots, jobs[::-1])]


def test_sjf_and_ljf_go_by_what_remains_not_by_the_total() -> None:
    assert indices("sjf", [30, 20, 25], [20, 0, 0]) == [0, 1, 2]
    assert indices("ljf", [30, 20, 25], [20, 0, 0]) == [2, 1, 0]
    assert [indices(name, [7, 7, 7], num_slots=3) for name in ORDERS] == [[0, 1, 2]] * 3  # ties go by arrival


def test_grouped_starts_jobs_when_the_plan_says_so() -> None:
    # the plan: {6, 4} on one slot from 0 and 6, {5, 3, 2} on the other from 0, 5 and 8
    assert indices("grouped", [2, 3, 4, 5, 6]) == [4, 3, 1, 2, 0]
    assert sorted(sorted(slot) for slot in partition([2, 3, 4, 5, 6], 2)) == [[0, 1, 3], [2, 4]]
    assert indices("grouped", [2, 9, 4], num_slots=1 << 31) == [1, 2, 0]


def test_full_without_a_slot_a_job_is_refused() -> None:
    scheduler = Full(Limits(num_slots=4))
    scheduler.submit(jobs_of(5))
    with pytest.raises(UsageError, match="5 rollouts at once, but num_slots = 4"):
        scheduler.admit([])


def test_micro_starts_a_round_only_when_the_last_has_ended() -> None:
    jobs = jobs_of(5)
    scheduler = Micro(Limits(num_slots=2))
    scheduler.submit(jobs)
    assert scheduler.admit([]) == jobs[:2]
    assert scheduler.admit(jobs[:1]) == []
    assert scheduler.admit([]) == jobs[2:4]
    assert scheduler.admit([]) == jobs[4:]


def test_probed_jobs_step_aside_for_those_that_are_not() -> None:
    jobs = jobs_of(3)
    scheduler = Probed(Limits(num_slots=2), fifo, probe_at=1)
    scheduler.submit(jobs)
    running = scheduler.admit([])
    assert running == jobs[:2]
    for job in running:
        job.num_tokens = 1
    assert scheduler.preempt(running) == [jobs[0]]  # one waits unprobed, so one goes
    scheduler.submit([jobs[0]])
    assert scheduler.admit([jobs[1]]) == [jobs[2]]
    jobs[2].num_tokens = 1
    assert scheduler.preempt([jobs[1], jobs[2]]) == []  # all are probed: they run on
    assert scheduler.admit([jobs[1]]) == [jobs[0]]


def test_full_group_takes_the_longest_and_the_memory_of_all() -> None:
    result = run("full", [3, 5, 1], num_slots=3)
    assert (result.num_steps, result.completion_steps) == (5, [3, 5, 1])
    assert result.peak_kv_tokens == 12  # three rows of 4, then two of at most 6, then one of at most 8
    assert result.peak_held_tokens == 12
    assert result.pool_tokens == 3 * 8


def test_continuous_refills_a_slot_for_the_very_next_step() -> None:
    result = run("continuous", [3, 5, 1, 2], num_slots=2)
    assert result.completion_steps == [3, 5, 4, 6]
    assert result.mean_completion_steps == 4.5
    assert result.spans == [
        Span(job=0, slot=0, start=0, end=3),
        Span(job=2, slot=0, start=3, end=4),
        Span(job=1, slot=1, start=0, end=5),
        Span(job=3, slot=0, start=4, end=6),
    ]


def test_longest_first_is_the_best_order_of_micro_rounds() -> None:
    draw = random.Random(0)
    for _ in range(8):
        lengths = [draw.randint(1, 9) for _ in range(6)]
        least = min(run("micro", list(order), 2).num_steps for order in set(permutations(lengths)))
        assert run("micro+ljf", lengths, 2).num_steps == least


def test_at_most_the_lengths_sum_is_a_step_and_at_least_the_bound() -> None:
    draw = random.Random(1)
    for _ in range(400):
        lengths = [draw.randint(1, 20) for _ in range(draw.randint(1, 12))]
        num_slots = draw.randint(1, 5)
        steps = run(f"continuous+{draw.choice(['fifo', *ORDERS])}", lengths, num_slots).num_steps
        assert least_steps(lengths, num_slots) <= steps
        assert steps <= (sum(lengths) - max(lengths)) / num_slots + max(lengths)


class Driver:
    """Stands for an engine: jobs arrive, end, are aborted, paused and resumed at random."""

    def __init__(self, name: str, seed: int) -> None:
        self.draw = random.Random(seed)
        self.limits = Limits(
            num_slots=40 if name.startswith("full") else self.draw.randint(1, 6), num_tokens=self.draw.randint(12, 80)
        )
        self.is_dynamic = name.startswith("dynamic")
        self.predictor = LengthRegression(self.draw.randint(1, 4) if name.startswith("probed") else None)
        self.scheduler: Any = (
            make_scheduler(name.replace(" ships", ""), self.limits)
            if " ships" in name
            else make_schedule(name, self.limits, self.predictor)
        )
        self.jobs = [self.new_job(i) for i in range(self.draw.randint(1, 14))]
        self.length = {job: self.draw.randint(1, job.max_new_tokens) for job in self.jobs}
        self.coming, self.paused = list(self.jobs), list[Job]()
        self.pending, self.running = set[Job](), list[Job]()
        self.ended: list[Job] = []

    def new_job(self, order: int) -> Job:
        prompt_length = self.draw.randint(1, 6)
        return Job(f"s0/{order % 3}", order, prompt_length=prompt_length, max_new_tokens=12, order=order)

    def submit(self, jobs: list[Job]) -> None:
        if jobs:
            self.scheduler.submit(jobs)
            self.pending.update(jobs)

    def disturb(self) -> None:
        """Arrivals, and now and then an abort or a pause of a pending or a running job."""
        self.submit([self.coming.pop(0) for _ in range(self.draw.randint(0, min(4, len(self.coming))))])
        if self.paused and self.draw.random() < 0.5:
            self.submit([self.paused.pop()])
        alive = sorted(self.pending, key=lambda job: job.order) + self.running
        if alive and self.draw.random() < 0.15:
            job = self.draw.choice(alive)
            if job in self.pending:
                self.pending.remove(job)
                self.scheduler.withdraw([job])
            else:
                self.running.remove(job)
            (self.paused if self.draw.random() < 0.6 else self.ended).append(job)

    def schedule(self) -> None:
        if self.scheduler.may_preempt and self.running:
            preempted = self.scheduler.preempt(list(self.running))
            assert set(preempted) <= set(self.running)
            self.running = [job for job in self.running if job not in set(preempted)]
            self.submit(preempted)
        admitted = self.scheduler.admit(list(self.running))
        assert len(set(admitted)) == len(admitted) and set(admitted) <= self.pending
        self.pending.difference_update(admitted)
        self.running += admitted
        assert self.scheduler.num_pending == len(self.pending)
        assert self.running or not self.pending, "work waits and nothing runs"
        assert len(self.running) <= self.limits.num_slots
        if self.is_dynamic and len(self.running) > 1 and self.limits.num_tokens is not None:
            assert len(self.running) * max(job.row_length for job in self.running) <= self.limits.num_tokens

    def make_tokens(self) -> None:
        for job in self.running:
            job.num_tokens += 1
        done = [job for job in self.running if job.num_tokens == self.length[job]]
        self.running = [job for job in self.running if job.num_tokens < self.length[job]]
        for job in done:
            self.scheduler.finish(job)
        self.ended += done
        probed = [job for job in self.running if job.num_tokens == self.predictor.probe_at]
        if probed:
            self.predictor.observe(probed, np.ones((len(probed), 3), dtype=np.float32))


@each("name", NAMES, few=2)
def test_under_random_arrivals_aborts_and_pauses_every_job_ends_once(name: str) -> None:
    for seed in range(120):
        driver = Driver(name, seed)
        steps = 0
        while len(driver.ended) < len(driver.jobs):
            driver.disturb()
            driver.schedule()
            driver.make_tokens()
            steps += 1
            assert steps < 1000, f"seed {seed}: nothing ends"
        assert sorted(job.order for job in driver.ended) == list(range(len(driver.jobs)))
        assert driver.scheduler.num_pending == 0
