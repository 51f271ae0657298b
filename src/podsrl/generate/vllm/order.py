"""Refill orders as vLLM's priorities.

vLLM refills freed slots at once, and where the key-value memory is full the rollout with the last priority leaves and
is read again later: both schedulers, "continuous" and "dynamic", are this one.
"""

from __future__ import annotations

from collections.abc import Iterable

from podsrl.generate.base import Request
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.scheduler import named


class Priorities:
    """Numbers rollouts in the refill order; vLLM starts the lowest of those that wait.

    The order is made over the rollouts of one call: those of a later call come after them.

    Args:
        scheduler: such as "continuous+breadth".

    Raises:
        UsageError: no such scheduler or order.

    Example:
        >>> Priorities("continuous+breadth").of([Request("a", (5,), 2), Request("b", (6,))])
        {('a', 0): 0, ('a', 1): 2, ('b', 0): 1}
    """

    def __init__(self, scheduler: str) -> None:
        _, self._order = named(scheduler, "rollouts.scheduler")
        self._num_arrived = 0

    def of(self, requests: Iterable[Request]) -> dict[tuple[str, int], int]:
        """(request id, index) -> priority of every rollout of these requests."""
        keys = [(request, index) for request in requests for index in request.indices]
        first, self._num_arrived = self._num_arrived, self._num_arrived + len(keys)
        jobs = {
            (request.id, index): Job(request.id, index, len(request.prompt_ids), request.sampling.max_new_tokens, order)
            for order, (request, index) in enumerate(keys, first)
        }
        places = {job: place for place, job in enumerate(self._order(list(jobs.values())), first)}
        return {key: places[job] for key, job in jobs.items()}
