"""Which rollouts run in which step: Infinite Sampling's scheduling (arXiv 2506.22950), in plain Python.

    full          all at once: the fewest steps, the most memory
    micro         rounds of `num_slots`; the next begins when the last has ended
    continuous    a fixed number of slots; a freed one is refilled in the same step
    probed        fixed slots, but every rollout first makes k tokens and is preempted; then all run on in order
    dynamic       as many rows as the KV memory holds at the present longest row; the last leave when rows grow

Where memory is short, `dynamic` is the one to use (docs/infinite-sampling.md); the others are the paper's own methods
and their baselines.

A refill order may follow the name: "continuous+ljf" (see `orders.py`; fifo where none is given). A scheduler sees jobs,
never tokens or tensors, so the simulator and the engine run the same objects. What comes out of a rollout does not
depend on the schedule: random numbers belong to (seed, stream, index, position).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from podsrl.errors import UsageError, nearest
from podsrl.generate.schedule.job import Job, Limits, Order
from podsrl.generate.schedule.lengths import Features, LengthRegression, Predictor
from podsrl.generate.schedule.orders import ORDERS
from podsrl.generate.schedule.plain import Continuous, Full, Micro
from podsrl.generate.schedule.preempting import Dynamic, Probed

__all__ = ["SCHEDULERS", "Limits", "Scheduler", "make_scheduler"]


class Scheduler(Protocol):
    """What the engine asks in each step: preempt, admit, (the step itself), finish, observe.

    Jobs are compared by identity; `running` is always the whole list of running jobs.
    """

    @property
    def num_pending(self) -> int:
        """Jobs submitted and neither admitted nor withdrawn."""
        ...

    @property
    def probe_at(self) -> int | None:
        """Call `observe` for running jobs when they have made exactly this many tokens; None: never."""
        ...

    @property
    def may_preempt(self) -> bool:
        """Whether `preempt` has to be asked before each step."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take in jobs: new ones, or paused or preempted ones that come back with `num_tokens` > 0."""
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

    def observe(self, jobs: Sequence[Job], features: Features) -> None:
        """See features `[J, F]` float32 of jobs that have just made `probe_at` tokens.

        A row is the hidden state from which the newest token was drawn, then the mean log-prob so far, then the entropy
        of the distribution it was drawn from; at 0 tokens the next token's, with a mean of 0.
        """
        ...

    def finish(self, job: Job) -> None:
        """Learn from a job that ended by itself, with `job.num_tokens` tokens; not called for aborted ones."""
        ...


PROBE_AT = 16
"""Tokens after which "probed" predicts, where no predictor is given."""

SCHEDULERS: dict[str, Callable[[Limits, Order, Predictor | None], Scheduler]] = {
    "full": Full,
    "micro": Micro,
    "continuous": Continuous,
    "probed": Probed,
    "dynamic": Dynamic,
}


def make_scheduler(
    scheduler: str | Scheduler, limits: Limits, predictor: Predictor | None = None, *, option: str = "scheduler"
) -> Scheduler:
    """Build a scheduler from its name, perhaps with a refill order ("micro+ljf"); an object is returned as it is.

    `predictor` None: for the orders that need one a `LengthRegression`, on what is known at submission or, for
    "probed", on the first `PROBE_AT` tokens. UsageError: an unknown name; `option` is where the user gave it.

    Example:
        >>> make_scheduler("continuous+sjf", Limits(num_slots=4)).num_pending
        0
    """
    if not isinstance(scheduler, str):
        return scheduler
    name, _, order = scheduler.partition("+")
    order = order or "fifo"
    if name not in SCHEDULERS:
        raise UsageError(f"{option} = {scheduler!r}: no scheduler {name!r}.{nearest(name, SCHEDULERS)}")
    if order not in ORDERS:
        raise UsageError(f"{option} = {scheduler!r}: no refill order {order!r}.{nearest(order, ORDERS)}")
    return SCHEDULERS[name](limits, ORDERS[order], predictor or default_predictor(scheduler))


def default_predictor(scheduler: str) -> Predictor | None:
    """What a named scheduler predicts lengths with; None for the orders that need no prediction."""
    name, _, order = scheduler.partition("+")
    if name != "probed" and order in ("", "fifo", "breadth"):
        return None
    return LengthRegression(probe_at=PROBE_AT if name == "probed" else None)
