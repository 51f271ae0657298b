"""The simulator on schedules that can be drawn by hand, and every scheduler on thousands of random ones."""

from __future__ import annotations

import random
from itertools import permutations

import numpy as np

from benchmarks.infinite_sampling.simulate import KnownLengths, Simulation, Span, least_steps, simulate
from loops import each
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.lengths import LengthRegression
from podsrl.generate.schedule.orders import ORDERS
from podsrl.generate.schedule.scheduler import SCHEDULERS, Limits, make_scheduler

NAMES = [name if order == "fifo" else f"{name}+{order}" for name in SCHEDULERS for order in ORDERS]


def jobs_of(count: int, prompt_length: int = 4, max_new_tokens: int = 64) -> list[Job]:
    return [Job("a", i, prompt_length=prompt_length, max_new_tokens=max_new_tokens, order=i) for i in range(count)]


def run(name: str, lengths: list[int], num_slots: int, num_tokens: int | None = None) -> Simulation:
    """With true lengths known."""
    jobs = jobs_of(len(lengths))
    known = KnownLengths(dict(zip(jobs, lengths, strict=True)))
    return simulate(make_scheduler(name, Limits(num_slots=num_slots, num_tokens=num_tokens), known), jobs, lengths)


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
        steps = run(f"continuous+{draw.choice(list(ORDERS))}", lengths, num_slots).num_steps
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
        predictor = LengthRegression(probe_at=self.draw.randint(1, 4)) if name.startswith("probed") else None
        self.scheduler = make_scheduler(name, self.limits, predictor)
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
        probed = [job for job in self.running if job.num_tokens == self.scheduler.probe_at]
        if probed:
            self.scheduler.observe(probed, np.ones((len(probed), 3), dtype=np.float32))


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
