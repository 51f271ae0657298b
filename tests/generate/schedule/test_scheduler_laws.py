"""Every scheduler that ships on thousands of random jobs: no job is lost, and the bounds hold."""

from __future__ import annotations

import random

from loops import each
from podsrl.generate.schedule.job import ORDERS, Job, Limits
from podsrl.generate.schedule.scheduler import make_scheduler

NAMES = [f"{name}+{order}" for name in ("continuous", "dynamic") for order in ORDERS]


class Driver:
    """Stands for an engine: jobs arrive, end, are aborted, paused and resumed at random."""

    def __init__(self, name: str, seed: int) -> None:
        self.draw = random.Random(seed)
        self.limits = Limits(num_slots=self.draw.randint(1, 6), num_tokens=self.draw.randint(12, 80))
        self.is_dynamic = name.startswith("dynamic")
        self.scheduler = make_scheduler(name, self.limits)
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


@each("name", NAMES)
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


@each("seed", range(300))
def test_steps_of_fixed_slots_are_within_the_bounds_of_any_order(seed: int) -> None:
    """At least the lengths' sum over the slots and the longest; at most what Graham (1966) proves."""
    driver = Driver(f"continuous+{random.Random(seed).choice([*ORDERS])}", seed)
    driver.submit(driver.jobs)
    lengths, num_slots, steps = list(driver.length.values()), driver.limits.num_slots, 0
    while len(driver.ended) < len(driver.jobs):
        driver.schedule()
        driver.make_tokens()
        steps += 1
    assert max(-(-sum(lengths) // num_slots), max(lengths)) <= steps
    assert steps <= (sum(lengths) - max(lengths)) / num_slots + max(lengths)
