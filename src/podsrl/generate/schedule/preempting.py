"""Schedulers that take a running job out again: its tokens stay, its KV is dropped and read again later."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.errors import UsageError
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.lengths import Predictor
from podsrl.generate.schedule.limits import Limits
from podsrl.generate.schedule.orders import Order, fifo
from podsrl.generate.schedule.slots import Continuous


class Dynamic(Continuous):
    """As many rows as the KV memory holds: rows times the longest row is at most `limits.num_tokens`.

    While rows are short, more of them run than there would be fixed slots for the longest. As the longest grows, rows
    have to go: the one that the refill order puts last leaves, so what was just started is not what leaves. To leave
    rarely, a job starts only where it would still fit with the longest row grown by `headroom`. Every step makes a
    token for some row and no token is ever lost, so all jobs end.

    Args:
        limits: `num_tokens` None leaves only the slots as a bound.
        order: who is next.
        predictor: fills `job.predicted` for the order.
        headroom: growth of the longest row, as a fraction of it, at least 0: little means more rows and more rereading.

    Raises:
        UsageError: a negative headroom.
    """

    may_evict = True

    def __init__(
        self, limits: Limits, order: Order = fifo, predictor: Predictor | None = None, headroom: float = 1 / 16
    ) -> None:
        if not headroom >= 0:
            raise UsageError(f"headroom = {headroom}: wanted at least 0")
        super().__init__(limits, order, predictor)
        self.headroom = headroom

    def admit(self, live: Sequence[Job]) -> list[Job]:
        longest = max((job.row_length for job in live), default=0)
        count = 0
        for job in self._pending.next(self.limits.num_slots - len(live)):
            longest = max(longest, job.row_length)
            rows = len(live) + count + 1
            # a lone job always starts: the engine refuses requests that never fit
            if rows > 1 and not self._fits(rows, longest * (1 + self.headroom)):
                break
            count += 1
        return self._pending.take(count)

    def evict(self, live: Sequence[Job]) -> list[Job]:
        longest = max(job.row_length for job in live)
        if self._fits(len(live), longest):
            return []
        stay = self._order(live, self.limits.num_slots)
        leave: list[Job] = []
        while len(stay) > 1 and not self._fits(len(stay), longest):
            leave.append(stay.pop())
            longest = max(job.row_length for job in stay)
        return leave

    def _fits(self, rows: int, longest: float) -> bool:
        return self.limits.num_tokens is None or rows * longest <= self.limits.num_tokens


class Probed(Continuous):
    """Two stages on fixed slots: every job makes its first k tokens and steps aside, then all run on in order.

    This is length prediction conditioned on the first k tokens, as the paper has it: only when k tokens of every job
    exist can all be ordered or grouped by it. Its price is one more prefill of prompt and k tokens for every job that
    steps aside.

    Args:
        limits: slots.
        order: of the second stage.
        predictor: has to ask for features after k >= 1 tokens.

    Raises:
        UsageError: a predictor that looks at no tokens.
    """

    may_evict = True

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

    def admit(self, live: Sequence[Job]) -> list[Job]:
        admitted = super().admit(live)
        self._unprobed.difference_update(admitted)
        return admitted

    def evict(self, live: Sequence[Job]) -> list[Job]:
        """Jobs that have been probed leave for those that have not."""
        probed = [job for job in live if job.num_tokens >= self._probe_at]
        return probed[: len(self._unprobed)]

    def _in_stages(self, order: Order) -> Order:
        def staged(jobs: Sequence[Job], num_slots: int) -> list[Job]:
            first = [job for job in jobs if job in self._unprobed]
            return fifo(first, num_slots) + order([job for job in jobs if job not in self._unprobed], num_slots)

        return staged
