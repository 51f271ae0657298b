"""The schedulers that vLLM has a counterpart of, and their refill orders as vLLM's priorities."""

from __future__ import annotations

from collections.abc import Iterable

from podsrl.errors import UsageError, nearest
from podsrl.generate.base import Request
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.orders import ORDERS
from podsrl.generate.schedule.scheduler import default_predictor
from podsrl.types import Completion

SCHEDULERS = ("continuous", "dynamic")
"""vLLM refills freed slots at once, and where the key-value memory is full the rollout with the last priority leaves
and is read again later: both schedulers are this one."""


def check_scheduler(scheduler: str) -> None:
    """UsageError: vLLM has no counterpart of `rollouts.scheduler`."""
    name, _, order = scheduler.partition("+")
    if name not in SCHEDULERS:
        raise UsageError(
            f"rollouts.scheduler = {scheduler!r}: vLLM has a scheduler of its own; wanted 'continuous' or 'dynamic', "
            "perhaps with a refill order ('continuous+ljf'), or rollouts.generator = 'engine'"
        )
    if order and order not in ORDERS:
        raise UsageError(f"rollouts.scheduler = {scheduler!r}: no refill order {order!r}.{nearest(order, ORDERS)}")


class Priorities:
    """Numbers rollouts in the refill order; vLLM starts the lowest of those that wait.

    The order is made over the rollouts of one call: those of a later call come after them. Lengths are predicted as in
    the built-in engine and learned from completions.

    Args:
        scheduler: such as "continuous+sjf".
        num_slots: rollouts that run at once.

    Raises:
        UsageError: as `check_scheduler`.

    Example:
        >>> Priorities("continuous", 4).of([Request("a", (5,), 2), Request("b", (6,))])
        {('a', 0): 0, ('a', 1): 1, ('b', 0): 2}
    """

    def __init__(self, scheduler: str, num_slots: int) -> None:
        check_scheduler(scheduler)
        self._order = ORDERS[scheduler.partition("+")[2] or "fifo"]
        self._predictor = default_predictor(scheduler)
        self._num_slots, self._num_arrived = num_slots, 0
        self._jobs: dict[tuple[str, int], Job] = {}

    def of(self, requests: Iterable[Request]) -> dict[tuple[str, int], int]:
        """(request id, index) -> priority of every rollout of these requests."""
        first, jobs = self._num_arrived, dict[tuple[str, int], Job]()
        for request in requests:
            for index in request.indices:
                jobs[request.id, index] = Job(
                    request.random_stream,
                    index,
                    prompt_length=len(request.prompt_ids),
                    max_new_tokens=request.sampling.max_new_tokens,
                    order=self._num_arrived,
                )
                self._num_arrived += 1
        if self._predictor is not None:
            self._predictor.submit(list(jobs.values()))
            self._jobs |= jobs
        places = {job: place for place, job in enumerate(self._order(list(jobs.values()), self._num_slots), first)}
        return {key: places[job] for key, job in jobs.items()}

    def finish(self, completion: Completion) -> None:
        """Learn from a rollout's length; one that was aborted is forgotten."""
        job = self._jobs.pop((completion.request_id, completion.index), None)
        if job is not None and self._predictor is not None and completion.finish_reason in ("stop", "length"):
            job.num_tokens = len(completion.token_ids)
            self._predictor.finish(job)
