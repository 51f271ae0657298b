"""Schedulers that preempt: a running job leaves, keeps its tokens, and has its KV recomputed when it returns."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.errors import UsageError
from podsrl.generate.schedule.job import Job, Limits, Order
from podsrl.generate.schedule.lengths import Predictor
from podsrl.generate.schedule.orders import fifo
from podsrl.generate.schedule.plain import Continuous


class Dynamic(Continuous):
    """As many rows as the KV memory holds: rows times the longest row is at most `limits.num_tokens`.

    While rows are short, more of them run than there would be fixed slots for the longest. As the longest row grows,
    rows have to leave: first the job that the refill order puts last. To preempt rarely, a job starts only where it
    would still fit with the longest row grown by `headroom`. Every step makes a token for some row and no token is ever
    lost, so all jobs end.

    Example: 100 tokens hold 10 rows of 10. When the longest has grown to 12 tokens, 10 rows take 120, so 2 leave.

    `headroom` is the growth of the longest row, as a fraction of it: smaller means more rows and more recomputation.
    Without `limits.num_tokens` the slots alone are the bound.
    """

    may_preempt = True

    def __init__(
        self, limits: Limits, order: Order = fifo, predictor: Predictor | None = None, headroom: float = 1 / 16
    ) -> None:
        if not headroom >= 0:
            raise UsageError(f"headroom = {headroom}: wanted at least 0")
        super().__init__(limits, order, predictor)
        self.headroom = headroom

    def admit(self, running: Sequence[Job]) -> list[Job]:
        longest = max((job.row_length for job in running), default=0)
        count = 0
        for job in self._pending.next(self.limits.num_slots - len(running)):
            longest = max(longest, job.row_length)
            rows = len(running) + count + 1
            # a lone job always starts: the engine refuses requests that never fit
            if rows > 1 and not self._fits(rows, longest * (1 + self.headroom)):
                break
            count += 1
        return self._pending.take(count)

    def preempt(self, running: Sequence[Job]) -> list[Job]:
        longest = max(job.row_length for job in running)
        if self._fits(len(running), longest):
            return []
        stay = self._order(running, self.limits.num_slots)
        leave: list[Job] = []
        while len(stay) > 1 and not self._fits(len(stay), longest):
            leave.append(stay.pop())
            longest = max(job.row_length for job in stay)
        return leave

    def _fits(self, rows: int, longest: float) -> bool:
        return self.limits.num_tokens is None or rows * longest <= self.limits.num_tokens


class Probed(Continuous):
    """Two stages on fixed slots: every job makes its first k tokens and is preempted, then all run on in order.

    This is length prediction conditioned on the first k tokens, as in the Infinite Sampling paper: jobs can only be
    ordered or grouped by it when k tokens of every job exist. It costs one more prefill of prompt and k tokens for
    every job that is preempted for it. On measured lengths that costs more than it gains: use `Dynamic` instead.

    `order` is that of the second stage; the predictor asks for features after k >= 1 tokens.
    """

    may_preempt = True

    def __init__(self, limits: Limits, order: Order, predictor: Predictor | None) -> None:
        probe_at = None if predictor is None else predictor.probe_at
        if not probe_at:
            raise UsageError(f"probe_at = {probe_at} of the predictor: scheduler 'probed' wants at least 1 token")
        self._probe_at = probe_at
        self._unprobed: set[Job] = set()
        super().__init__(limits, self._in_stages(order), predictor)

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

    def _in_stages(self, order: Order) -> Order:
        def staged(jobs: Sequence[Job], num_slots: int) -> list[Job]:
            first = [job for job in jobs if job in self._unprobed]
            return fifo(first, num_slots) + order([job for job in jobs if job not in self._unprobed], num_slots)

        return staged
