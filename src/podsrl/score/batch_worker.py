"""One worker process for all reward functions of TRL's form, each called with a whole batch, within a time limit.

The process lives as long as the run, so what a function keeps in its module stays there; only a call that hits the
limit, or ends the process, makes it start anew. Such a function often holds a model: there is no limit of memory, and
torch has the main process's number of threads. Random numbers go on from the main process's state, which then goes on
from theirs.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping

from podsrl.errors import RewardError
from podsrl.score.base import Rows, Values, collect
from podsrl.score.batch_form import BatchForm
from podsrl.score.batch_job import BatchJob
from podsrl.score.dispatch import START_SECONDS, Dispatcher
from podsrl.score.worker import Setup


class BatchWorker:
    """The process that judges by functions of TRL's form. It starts with the first batch, or `start`.

    Args:
        forms: name, as `podsrl.score.find.find_reward` knows it -> the function in its form.
        timeout_seconds: limit for one function on one batch, and at least that for loading the functions; after an
            exception the calls row by row count too.
    """

    def __init__(self, forms: Mapping[str, BatchForm], *, timeout_seconds: float) -> None:
        self._forms = dict(forms)
        setup = Setup(names=tuple(forms), memory_bytes=None, cuda_device=_cuda_device())
        start_seconds = max(START_SECONDS, timeout_seconds)
        self._dispatcher = Dispatcher(setup, 1, timeout_seconds, max_chunk=1, start_seconds=start_seconds)
        self._end = weakref.finalize(self, self._dispatcher.close)
        self.seconds = 0.0
        """That the batch judged last took, or had when it was stopped."""

    def start(self) -> None:
        """Begin to start the process, without waiting for it."""
        self._dispatcher.add([])

    def judge(self, name: str, rows: Rows) -> Values:
        """Judge a batch by one of the functions.

        Raises:
            RewardError: the function breaks its contract for the whole batch, wants a column that no task has or that
                cannot be sent to another process, or cannot be loaded there.
        """
        if len(rows) == 0:
            return collect([])
        job = BatchJob(name, self._forms[name], rows)
        self._dispatcher.add([job])
        outcome: Values | RewardError = self._dispatcher.outcome(job)
        self.seconds = job.seconds
        if isinstance(outcome, RewardError):
            raise outcome
        return outcome

    def close(self) -> None:
        """End the process; nothing can be judged any more."""
        self._end()


def _cuda_device() -> int:
    """The GPU that a function in the main process would find as its own; 0 where it has chosen none."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0
