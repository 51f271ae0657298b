"""Run a scheduler on recorded lengths: what the engine would do, without a model.

One step makes one token for every running job, as in the engine, and a freed slot is refilled for the next step. The
result counts decode steps and KV tokens; it has no seconds, which depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from podsrl.errors import UsageError
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.scheduler import Scheduler

Look = Callable[[Sequence[Job]], None]
"""Shows jobs to a predictor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One stay of a job in a slot.

    Example: `Span(job=3, slot=0, start=5, end=9)`: the fourth job made 4 tokens in slot 0, before step 9 it left.
    """

    job: int
    """Place of the job in the list that was simulated."""
    slot: int
    start: int
    """First step, from 0."""
    end: int
    """One past the last step."""


@dataclass(slots=True, kw_only=True)
class Simulation:
    """The cost of a schedule."""

    completion_steps: list[int]
    """[J] the step after which each job was complete."""
    num_steps: int = 0
    """Decode steps, the makespan: until the last job is complete."""
    peak_rows: int = 0
    """Most running rows in a step."""
    peak_kv_tokens: int = 0
    """Most KV tokens in a step, counted as running rows times the longest row: a pool whose rows are equally long."""
    peak_held_tokens: int = 0
    """Most KV tokens in a step, counted row by row: a paged cache."""
    longest_row: int = 0
    """Tokens of the longest row of any step."""
    num_preemptions: int = 0
    recomputed_tokens: int = 0
    """Tokens of prompts and completions that were computed again because their KV had been dropped."""
    spans: list[Span] = field(default_factory=list)
    """The trace of slots over time, in order of their end."""

    @property
    def pool_tokens(self) -> int:
        """KV tokens of a pool that never shrinks: most rows times the longest row."""
        return self.peak_rows * self.longest_row

    @property
    def mean_completion_steps(self) -> float:
        """Mean over jobs of the step in which each was complete (mean flow time: all arrive at step 0)."""
        return float(np.mean(self.completion_steps))


def least_steps(lengths: Sequence[int], num_slots: int) -> int:
    """No schedule of `num_slots` slots takes fewer steps: max(ceil(sum L / g), max L).

    Example:
        >>> least_steps([3, 3, 2], 2), least_steps([9, 1], 2)
        (4, 9)
    """
    return max(-(-sum(lengths) // num_slots), max(lengths))


def simulate(
    scheduler: Scheduler,
    jobs: Sequence[Job],
    lengths: Sequence[int],
    *,
    probe_at: int | None = None,
    look: Look = lambda jobs: None,
) -> Simulation:
    """Run all jobs, submitted at step 0, to their ends.

    Args:
        scheduler: fresh, or with what it learned before.
        jobs: J jobs; their `num_tokens` is written.
        lengths: [J] new tokens each will make, from 1 to its `max_new_tokens`.
        probe_at: tokens after which a job is looked at; None: never.
        look: is given the jobs that have just made so many.

    Returns:
        Counts and the trace.

    Raises:
        UsageError: lengths that do not fit the jobs, or a scheduler that starts nothing while nothing runs.

    Example:
        >>> from podsrl.generate.schedule.scheduler import Limits, make_scheduler
        >>> jobs = [Job("a", i, prompt_length=1, max_new_tokens=9, order=i) for i in range(3)]
        >>> simulate(make_scheduler("continuous", Limits(num_slots=2)), jobs, [3, 2, 4]).completion_steps
        [3, 2, 6]
    """
    if len(lengths) != len(jobs) or any(not 1 <= n <= job.max_new_tokens for job, n in zip(jobs, lengths, strict=True)):
        raise UsageError("lengths: wanted one per job, from 1 to its max_new_tokens")
    simulator = _Simulator(scheduler, jobs, lengths, probe_at, look)
    scheduler.submit(jobs)
    while scheduler.num_pending or simulator.running:
        simulator.step()
    return simulator.result


class _Simulator:
    """The state of a simulation between two steps."""

    def __init__(
        self, scheduler: Scheduler, jobs: Sequence[Job], lengths: Sequence[int], probe_at: int | None, look: Look
    ) -> None:
        self.scheduler = scheduler
        self.running: list[Job] = []
        self.probe_at, self.look = probe_at, look
        self.total = dict(zip(jobs, lengths, strict=True))
        self.place = {job: place for place, job in enumerate(jobs)}
        self.seats: dict[Job, tuple[int, int]] = {}  # running job -> (slot, first step)
        self.free: list[int] = []
        self.result = Simulation(completion_steps=[0] * len(jobs))
        self.may_admit = True

    def step(self) -> None:
        if self.scheduler.may_preempt and self.running:
            self._preempt()
        if self.may_admit:
            self._admit()
        if not self.running:
            raise UsageError(f"scheduler {self.scheduler!r} starts none of {self.scheduler.num_pending} pending jobs")
        self._count()
        for job in self.running:
            job.num_tokens += 1
        self._finish()
        if probed := [job for job in self.running if job.num_tokens == self.probe_at]:
            self.look(probed)

    def _admit(self) -> None:
        self.may_admit = False
        admitted = self.scheduler.admit(self.running)
        for job in admitted:
            if job.num_tokens:
                self.result.recomputed_tokens += job.row_length
            slot = self.free.pop() if self.free else len(self.seats)
            self.seats[job] = (slot, self.result.num_steps)
        self.running += admitted

    def _preempt(self) -> None:
        preempted = self.scheduler.preempt(self.running)
        if preempted:
            self.result.num_preemptions += len(preempted)
            self._leave(preempted)
            self.scheduler.submit(preempted)

    def _finish(self) -> None:
        done = [job for job in self.running if job.num_tokens == self.total[job]]
        if done:
            self._leave(done)
        for job in done:
            self.result.completion_steps[self.place[job]] = self.result.num_steps
            self.scheduler.finish(job)

    def _leave(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            slot, start = self.seats.pop(job)
            self.free.append(slot)
            if self.result.num_steps > start:
                span = Span(job=self.place[job], slot=slot, start=start, end=self.result.num_steps)
                self.result.spans.append(span)
        gone = set(jobs)
        self.running = [job for job in self.running if job not in gone]
        self.may_admit = True

    def _count(self) -> None:
        result, rows = self.result, [job.row_length for job in self.running]
        result.num_steps += 1
        result.peak_rows = max(result.peak_rows, len(rows))
        result.longest_row = max(result.longest_row, *rows)
        result.peak_kv_tokens = max(result.peak_kv_tokens, len(rows) * max(rows))
        result.peak_held_tokens = max(result.peak_held_tokens, sum(rows))
