"""What the dispatcher hands to a worker: the seam of its two kinds, `row_job.py` and `batch_job.py`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from podsrl.score.base import Fault


class Job(ABC):
    """Something to be judged by one reward function, in one call.

    Args:
        name: of the function.
    """

    max_answer_bytes = 1 << 16
    """A longer answer is malformed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome: Any = None
        """None until it is judged."""
        self.seconds = 0.0
        self.num_deaths = 0
        """Workers that ended while they judged it."""
        self.done = threading.Lock()
        """Held until there is an outcome, or never will be one."""
        self.done.acquire()

    @staticmethod
    @abstractmethod
    def line(jobs: Sequence[Any], first: int) -> str:
        """Write jobs of this kind as one line, numbered from `first`."""

    @abstractmethod
    def read(self, body: Any) -> Any:
        """Check a worker's answer, and give the outcome.

        Raises:
            Malformed: it is no answer to this job.
        """

    @abstractmethod
    def failed(self, fault: Fault) -> Any:
        """Give the outcome where there was no answer."""
