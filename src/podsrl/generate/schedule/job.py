"""What schedulers work with: a rollout's lengths (`Job`), the room there is (`Limits`), and who waits (`Pending`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from podsrl.errors import UsageError


@dataclass(slots=True, eq=False)
class Job:
    """One rollout to be generated, as a scheduler sees it. Two jobs are equal only if they are the same object.

    Example:
        >>> Job("a", 0, prompt_length=10, max_new_tokens=64, order=0, num_tokens=3).row_length
        13
    """

    request_id: str
    """Of the group."""
    index: int
    """Which of the group's rollouts, from 0."""
    prompt_length: int
    """Tokens, at least 1."""
    max_new_tokens: int
    order: int
    """Arrival number, unique; kept when the job is preempted and comes back."""
    num_tokens: int = 0
    """New tokens made so far; the engine keeps it current."""

    @property
    def row_length(self) -> int:
        """Tokens of KV memory that the next step needs for this job's row."""
        return self.prompt_length + self.num_tokens


Order = Callable[[Sequence[Job]], list[Job]]
"""Pending jobs -> the same jobs, next first."""


def fifo(jobs: Sequence[Job]) -> list[Job]:
    """First come, first served; a job that was preempted keeps its place."""
    return sorted(jobs, key=lambda job: job.order)


def breadth(jobs: Sequence[Job]) -> list[Job]:
    """Lowest index first, so that all groups grow alike: least waste where groups may be closed."""
    return sorted(jobs, key=lambda job: (job.index, job.order))


ORDERS: dict[str, Order] = {"fifo": fifo, "breadth": breadth}
"""Refill orders: which pending job takes the next free slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the engine has room for. UsageError: fewer than one slot or one token."""

    num_slots: int
    """Most running jobs, at least 1."""
    num_tokens: int | None = None
    """Tokens of KV memory, counted as running rows times the longest row; None: bounded by the slots alone."""

    def __post_init__(self) -> None:
        for option, value in (("num_slots", self.num_slots), ("num_tokens", self.num_tokens)):
            if value is not None and value < 1:
                raise UsageError(f"{option} = {value}: wanted at least 1; give the engine more memory or fewer slots")


class Pending:
    """Waiting jobs; sorted only when one is asked for after a change."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._jobs: dict[Job, None] = {}  # a dict: sorted by insertion, removal in constant time
        self._is_sorted = True

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, jobs: Iterable[Job]) -> None:
        """Add waiting jobs."""
        self._jobs.update(dict.fromkeys(jobs))
        self._is_sorted = False

    def remove(self, jobs: Iterable[Job]) -> None:
        """Remove jobs."""
        for job in jobs:
            del self._jobs[job]

    def next(self, count: int) -> list[Job]:
        """The next `count` jobs or all there are, without taking them."""
        if not self._is_sorted:
            self._jobs = dict.fromkeys(self._order(tuple(self._jobs)))
            self._is_sorted = True
        return list(islice(self._jobs, max(0, count)))

    def take(self, count: int) -> list[Job]:
        """Remove and return the next `count` jobs, or all there are."""
        jobs = self.next(count)
        self.remove(jobs)
        return jobs
