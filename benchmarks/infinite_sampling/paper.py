"""The schedules of Infinite Sampling (arXiv 2506.22950) and their baselines, beside the two that ship.

    full          all at once: the fewest steps, the most memory
    micro         rounds of `num_slots`; the next begins when the last has ended
    continuous    ships; a fixed number of slots, and a freed one is refilled in the same step
    probed        fixed slots, but every rollout first makes k tokens and is preempted; then all run on in order
    dynamic       ships; as many rows as the KV memory holds at the present longest row

A refill order may follow the name: "continuous+ljf". Those that need lengths go by a predictor (predict.py):

    fifo      in order of arrival
    sjf       shortest expected remainder first: the least mean completion time, a long tail at the end
    ljf       longest expected remainder first: the classical rule for a short makespan (LPT); with true lengths at most
              4/3 of the best (Graham 1969)
    grouped   in the order of a plan made over all pending jobs at once (partition.py)

The simulator and the engine run the same objects: `Engine(model, num_slots=4, scheduler=make_schedule("probed+ljf",
Limits(num_slots=4), LengthRegression(16)))`, with `Probe` as the watch where the predictor looks at tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.infinite_sampling.partition import partition
from benchmarks.infinite_sampling.predict import Predictor, remaining
from podsrl.errors import UsageError, nearest
from podsrl.generate import Live
from podsrl.generate.schedule.continuous import Continuous, Dynamic
from podsrl.generate.schedule.job import Job, Limits, Order, fifo
from podsrl.generate.schedule.scheduler import Scheduler

# --- orders ---

Remaining = Callable[[Job], float]


def sjf(left: Remaining, num_slots: int, jobs: Sequence[Job]) -> list[Job]:
    """Shortest expected remainder first."""
    return sorted(jobs, key=lambda job: (left(job), job.order))


def ljf(left: Remaining, num_slots: int, jobs: Sequence[Job]) -> list[Job]:
    """Longest expected remainder first."""
    return sorted(jobs, key=lambda job: (-left(job), job.order))


def grouped(left: Remaining, num_slots: int, jobs: Sequence[Job]) -> list[Job]:
    """Balance all pending jobs over the slots, then start each when the plan says so.

    A slot's jobs run longest first, and jobs are ordered by planned start. If lengths come as predicted, every job
    starts exactly when planned; if not, a slot that is free early takes the next start of any, so none stands idle.
    """
    starts: dict[Job, float] = {}
    lengths = [left(job) for job in jobs]
    for slot in partition(lengths, max(1, min(num_slots, len(jobs)))):
        clock = 0.0
        for place in sorted(slot, key=lambda place: (-lengths[place], jobs[place].order)):
            starts[jobs[place]] = clock
            clock += lengths[place]
    return sorted(jobs, key=lambda job: (starts[job], -left(job), job.order))


ORDERS = {"sjf": sjf, "ljf": ljf, "grouped": grouped}


# --- schedulers ---


class Full(Continuous):
    """All jobs at once: the reference for all others. UsageError: (by `admit`) more jobs than slots."""

    def admit(self, running: Sequence[Job]) -> list[Job]:
        count = len(running) + len(self._pending)
        if count > self.limits.num_slots:
            raise UsageError(f"scheduler 'full': {count} rollouts at once, but num_slots = {self.limits.num_slots}")
        return self._pending.take(count)


class Micro(Continuous):
    """Sequential micro sampling groups: a round of at most `num_slots` jobs starts when the last round has ended.

    The steps are the sum over rounds of the longest job. Rounds of jobs of similar length (ljf or sjf with true
    lengths) make that sum least.
    """

    def admit(self, running: Sequence[Job]) -> list[Job]:
        return [] if running else self._pending.take(self.limits.num_slots)


class Probed(Continuous):
    """Two stages on fixed slots: every job makes its first k tokens and is preempted, then all run on in order.

    This is length prediction conditioned on the first k tokens, as in the paper: jobs can only be ordered or grouped by
    it when k tokens of every job exist. It costs one more prefill of prompt and k tokens for every job that is
    preempted for it. `order` is that of the second stage.
    """

    may_preempt = True

    def __init__(self, limits: Limits, order: Order, probe_at: int) -> None:
        self._probe_at = probe_at
        self._unprobed: set[Job] = set()
        super().__init__(limits, partial(self._staged, order))

    def submit(self, jobs: Sequence[Job]) -> None:
        self._unprobed.update(job for job in jobs if job.num_tokens < self._probe_at)
        super().submit(jobs)

    def withdraw(self, jobs: Sequence[Job]) -> None:
        self._unprobed.difference_update(jobs)
        super().withdraw(jobs)

    def admit(self, running: Sequence[Job]) -> list[Job]:
        admitted = super().admit(running)
        self._unprobed.difference_update(admitted)
        return admitted

    def preempt(self, running: Sequence[Job]) -> list[Job]:
        """Preempt jobs that have their k tokens, for those that do not."""
        probed = [job for job in running if job.num_tokens >= self._probe_at]
        return probed[: len(self._unprobed)]

    def _staged(self, order: Order, jobs: Sequence[Job]) -> list[Job]:
        first = [job for job in jobs if job in self._unprobed]
        return fifo(first) + order([job for job in jobs if job not in self._unprobed])


class Predicted:
    """A scheduler whose jobs a predictor sees."""

    def __init__(self, scheduler: Scheduler, predictor: Predictor) -> None:
        self.predictor = predictor
        self.jobs: dict[tuple[str, int], Job] = {}
        """Those that have not ended, by (group, index)."""
        self._scheduler = scheduler

    def submit(self, jobs: Sequence[Job]) -> None:
        self.jobs |= {(job.request_id, job.index): job for job in jobs}
        self.predictor.submit(jobs)
        self._scheduler.submit(jobs)

    def finish(self, job: Job) -> None:
        del self.jobs[job.request_id, job.index]
        self.predictor.finish(job)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)


SCHEDULERS = {"full": Full, "micro": Micro, "continuous": Continuous, "dynamic": Dynamic}


def make_schedule(name: str, limits: Limits, predictor: Predictor) -> Predicted:
    """The scheduler of a name such as "micro+ljf".

    UsageError: no such schedule or order; "probed" with a predictor that looks at no token.
    """
    name, _, order = name.partition("+")
    for part, known in ((name, {*SCHEDULERS, "probed"}), (order or "fifo", {*ORDERS, "fifo"})):
        if part not in known:
            raise UsageError(f"schedule {part!r}: none by that name.{nearest(part, known)}")
    left = partial(remaining, predictor)
    ordered = partial(ORDERS[order], left, limits.num_slots) if order in ORDERS else fifo
    if name != "probed":
        return Predicted(SCHEDULERS[name](limits, ordered), predictor)
    if not predictor.probe_at:
        raise UsageError(f"probe_at = {predictor.probe_at} of the predictor: 'probed' wants at least 1 token")
    return Predicted(Probed(limits, ordered, predictor.probe_at), predictor)


class Probe:
    """A watch that shows the predictor of an engine's scheduler what each rollout's k-th token is drawn from.

    The features are the hidden state, the log-prob of the likeliest token, and the entropy.
    """

    def __init__(self, scheduler: Predicted) -> None:
        self._scheduler = scheduler
        self.at: frozenset[int] | None = frozenset({(scheduler.predictor.probe_at or 0) - 1})

    def look(self, live: Live) -> tuple[()]:
        columns = [live.hidden.float(), live.logprobs.max(dim=1, keepdim=True).values, live.entropies[:, None]]
        features = torch.cat(columns, dim=1)[live.row_of].cpu().numpy().astype(np.float32)
        keys = zip(live.groups, (index for _, index in live.keys), strict=True)
        self._scheduler.predictor.observe([self._scheduler.jobs[key] for key in keys], features)
        return ()
