"""Schedulers that never preempt, with a fixed number of slots: full group, micro groups, continuous."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.errors import UsageError
from podsrl.generate.schedule.job import Job, Limits, Order, Pending
from podsrl.generate.schedule.lengths import Features, Predictor
from podsrl.generate.schedule.orders import fifo


class Continuous:
    """Fixed slots: whenever fewer than `num_slots` jobs run, the next in order starts in the same step.

    Decode steps of one group with lengths L on g slots are at least max(ceil(sum L / g), max L), and at most
    (sum L - max L) / g + max L in any order (Graham 1966), 4/3 of the best with ljf and true lengths (Graham 1969).

    `num_tokens` of the limits is ignored, since the engine derives the slots from it.
    """

    may_preempt = False

    def __init__(self, limits: Limits, order: Order = fifo, predictor: Predictor | None = None) -> None:
        self.limits = limits
        self._order = order
        self._pending = Pending(order, limits.num_slots)
        self._predictor = predictor

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    @property
    def probe_at(self) -> int | None:
        return None if self._predictor is None else self._predictor.probe_at

    def submit(self, jobs: Sequence[Job]) -> None:
        if self._predictor is not None:
            self._predictor.submit(jobs)
        self._pending.add(jobs)

    def withdraw(self, jobs: Sequence[Job]) -> None:
        self._pending.remove(jobs)

    def admit(self, running: Sequence[Job]) -> list[Job]:
        return self._pending.take(self.limits.num_slots - len(running))

    def preempt(self, running: Sequence[Job]) -> list[Job]:
        return []

    def observe(self, jobs: Sequence[Job], features: Features) -> None:
        if self._predictor is not None:
            self._predictor.observe(jobs, features)

    def finish(self, job: Job) -> None:
        if self._predictor is not None:
            self._predictor.finish(job)


class Full(Continuous):
    """All jobs at once: the fewest steps and the most memory; the reference for all others.

    Raises:
        UsageError: (by `admit`) more jobs than slots.
    """

    def admit(self, running: Sequence[Job]) -> list[Job]:
        count = len(running) + len(self._pending)
        if count > self.limits.num_slots:
            raise UsageError(
                f"scheduler = 'full': {count} rollouts at once, but num_slots = {self.limits.num_slots}; "
                "raise num_slots (or kv_cache_bytes), or use scheduler = 'continuous'"
            )
        return self._pending.take(count)


class Micro(Continuous):
    """Sequential micro sampling groups: a round of at most `num_slots` jobs starts when the last round has ended.

    The steps are the sum over rounds of the longest job. Rounds of jobs of similar length (ljf or sjf with true
    lengths) make that sum least.
    """

    def admit(self, running: Sequence[Job]) -> list[Job]:
        return [] if running else self._pending.take(self.limits.num_slots)
