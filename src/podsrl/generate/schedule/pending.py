"""The jobs that wait, in their refill order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.orders import Order


class Pending:
    """Waiting jobs; sorted only when one is asked for after a change."""

    def __init__(self, order: Order, num_slots: int) -> None:
        self._order = order
        self._num_slots = num_slots
        self._jobs: dict[Job, None] = {}  # a dict: sorted by insertion, removal in constant time
        self._is_sorted = True

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, jobs: Iterable[Job]) -> None:
        """Let jobs wait."""
        self._jobs.update(dict.fromkeys(jobs))
        self._is_sorted = False

    def remove(self, jobs: Iterable[Job]) -> None:
        """Forget jobs that wait no longer."""
        for job in jobs:
            del self._jobs[job]

    def resort(self) -> None:
        """Sort again before the next job is taken: a prediction has changed."""
        self._is_sorted = False

    def next(self, count: int) -> list[Job]:
        """The next `count` jobs or all there are, without taking them."""
        if not self._is_sorted:
            self._jobs = dict.fromkeys(self._order(tuple(self._jobs), self._num_slots))
            self._is_sorted = True
        return list(islice(self._jobs, max(0, count)))

    def take(self, count: int) -> list[Job]:
        """The next `count` jobs or all there are; they wait no longer."""
        jobs = self.next(count)
        self.remove(jobs)
        return jobs

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)
