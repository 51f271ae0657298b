"""Which rollouts run in which step, when the memory does not hold all of a group (Infinite Sampling, arXiv 2506.22950).

    continuous    a fixed number of slots; a freed one is refilled in the same step
    dynamic       as many rows as the KV memory holds at the present longest row; the last leave when rows grow

Where memory is short, `dynamic` is the one to use (docs/engine.md). `Engine(scheduler=…)` takes an object of
one's own.

A refill order may follow the name: "continuous+breadth" (`ORDERS` in job.py; fifo where none is given). A scheduler
sees jobs, never tokens or tensors. What comes out of a rollout does not depend on the schedule: random numbers belong
to (seed, group's id, index, position).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from podsrl.errors import UsageError, nearest
from podsrl.generate.schedule.continuous import Continuous, Dynamic
from podsrl.generate.schedule.job import ORDERS, Job, Limits, Order


class Scheduler(Protocol):
    """What the engine asks in each step: preempt, admit, (the step itself), finish.

    Jobs are compared by identity; `running` is always the whole list of running jobs.
    """

    @property
    def num_pending(self) -> int:
        """Jobs submitted and neither admitted nor withdrawn."""
        ...

    @property
    def may_preempt(self) -> bool:
        """Whether `preempt` has to be asked before each step."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take in jobs: new ones, or preempted ones that come back with `num_tokens` > 0."""
        ...

    def withdraw(self, jobs: Sequence[Job]) -> None:
        """Forget pending jobs."""
        ...

    def admit(self, running: Sequence[Job]) -> list[Job]:
        """Return the jobs to start now; they are no longer pending. Asked after a job arrived, ended or left."""
        ...

    def preempt(self, running: Sequence[Job]) -> list[Job]:
        """Return the running jobs that must leave before the next step; the engine hands them back by `submit`.

        Asked before `admit`, so that jobs that leave make room for others.
        """
        ...

    def finish(self, job: Job) -> None:
        """Learn from a job that ended by itself, with `job.num_tokens` tokens; not called for aborted ones."""
        ...


SCHEDULERS: dict[str, Callable[[Limits, Order], Scheduler]] = {"continuous": Continuous, "dynamic": Dynamic}


def named(scheduler: str, option: str = "scheduler") -> tuple[Callable[[Limits, Order], Scheduler], Order]:
    """What makes the scheduler of this name, and its refill order.

    UsageError: an unknown name; `option` is where the user gave it.
    """
    name, plus, order = scheduler.partition("+")
    order = order if plus else "fifo"
    for kind, part, known in (("scheduler", name, SCHEDULERS), ("refill order", order, ORDERS)):
        if part not in known:
            raise UsageError(f"{option} = {scheduler!r}: no {kind} {part!r}.{nearest(part, known)}")
    return SCHEDULERS[name], ORDERS[order]


def make_scheduler(scheduler: str | Scheduler, limits: Limits) -> Scheduler:
    """Build a scheduler from its name, perhaps with a refill order; an object is returned as it is.

    Raises:
        UsageError: an unknown name.

    Example:
        >>> make_scheduler("continuous+breadth", Limits(num_slots=4)).num_pending
        0
    """
    if not isinstance(scheduler, str):
        return scheduler
    make, order = named(scheduler)
    return make(limits, order)
