"""Refill orders: which pending job takes the next free slot.

    fifo      in order of arrival
    breadth   lowest index first, all groups side by side: least waste where groups may be closed (`steer.close`)
    sjf       shortest expected remainder first: the least mean completion time, a long tail at the end
    ljf       longest expected remainder first: the classical rule for a short makespan (LPT)
    grouped   in the order of a plan made over all pending jobs at once (`partition.py`)

An order is a function (pending jobs, number of slots) -> the same jobs, next first. Ties go by arrival.
"""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.generate.schedule.job import Job, Order
from podsrl.generate.schedule.partition import partition


def fifo(jobs: Sequence[Job], num_slots: int) -> list[Job]:
    """First come, first served; a job that was preempted keeps its place."""
    return sorted(jobs, key=lambda job: job.order)


def breadth(jobs: Sequence[Job], num_slots: int) -> list[Job]:
    """Lowest index first, so that all groups grow alike."""
    return sorted(jobs, key=lambda job: (job.index, job.order))


def sjf(jobs: Sequence[Job], num_slots: int) -> list[Job]:
    """Shortest expected remainder first."""
    return sorted(jobs, key=lambda job: (job.remaining, job.order))


def ljf(jobs: Sequence[Job], num_slots: int) -> list[Job]:
    """Longest expected remainder first."""
    return sorted(jobs, key=lambda job: (-job.remaining, job.order))


def grouped(jobs: Sequence[Job], num_slots: int) -> list[Job]:
    """Balance all pending jobs over the slots, then start each when the plan says so.

    A slot's jobs run longest first, and jobs are ordered by planned start. If lengths come as predicted, every job
    starts exactly when planned; if not, a slot that is free early takes the next start of any, so none stands idle.
    """
    starts: dict[Job, float] = {}
    num_used = max(1, min(num_slots, len(jobs)))  # an engine without a bound has slots without end
    for slot in partition([job.remaining for job in jobs], num_used):
        clock = 0.0
        for place in sorted(slot, key=lambda place: (-jobs[place].remaining, jobs[place].order)):
            starts[jobs[place]] = clock
            clock += jobs[place].remaining
    return sorted(jobs, key=lambda job: (starts[job], -job.remaining, job.order))


ORDERS: dict[str, Order] = {"fifo": fifo, "breadth": breadth, "sjf": sjf, "ljf": ljf, "grouped": grouped}
