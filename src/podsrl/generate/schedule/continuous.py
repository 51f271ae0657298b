"""The schedulers that ship: freed slots are refilled at once; `Dynamic` also lets go of rows when they grow."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.errors import UsageError
from podsrl.generate.schedule.job import Job, Limits, Order, Pending, fifo


class Continuous:
    """Fixed slots: whenever fewer than `num_slots` jobs run, the next in order starts in the same step.

    Decode steps of one group with lengths L on g slots are at least max(ceil(sum L / g), max L), and at most
    (sum L - max L) / g + max L in any order (Graham 1966).

    `num_tokens` of the limits is ignored, since the engine derives the slots from it.
    """

    may_preempt = False

    def __init__(self, limits: Limits, order: Order = fifo) -> None:
        self.limits = limits
        self._order = order
        self._pending = Pending(order)

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    def submit(self, jobs: Sequence[Job]) -> None:
        self._pending.add(jobs)

    def withdraw(self, jobs: Sequence[Job]) -> None:
        self._pending.remove(jobs)

    def admit(self, running: Sequence[Job]) -> list[Job]:
        return self._pending.take(self.limits.num_slots - len(running))

    def preempt(self, running: Sequence[Job]) -> list[Job]:
        return []

    def finish(self, job: Job) -> None:
        """Nothing is learned."""


class Dynamic(Continuous):
    """As many rows as the KV memory holds: rows times the longest row is at most `limits.num_tokens`.

    While rows are short, more of them run than there would be fixed slots for the longest. As the longest row grows,
    rows have to leave: first the job that the refill order puts last. It keeps its tokens, and its keys and values are
    recomputed when it returns. To preempt rarely, a job starts only where it would still fit with the longest row grown
    by `headroom`. Every step makes a token for some row and no token is ever lost, so all jobs end.

    Example: 100 tokens hold 10 rows of 10. When the longest has grown to 12 tokens, 10 rows take 120, so 2 leave.

    `headroom` is the growth of the longest row, as a fraction of it: smaller means more rows and more recomputation.
    Without `limits.num_tokens` the slots alone are the bound.
    """

    may_preempt = True

    def __init__(self, limits: Limits, order: Order = fifo, headroom: float = 1 / 16) -> None:
        if not headroom >= 0:
            raise UsageError(f"headroom = {headroom}: wanted at least 0")
        super().__init__(limits, order)
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
        stay = self._order(running)
        leave: list[Job] = []
        while len(stay) > 1 and not self._fits(len(stay), longest):
            leave.append(stay.pop())
            longest = max(job.row_length for job in stay)
        return leave

    def _fits(self, rows: int, longest: float) -> bool:
        return self.limits.num_tokens is None or rows * longest <= self.limits.num_tokens
