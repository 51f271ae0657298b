"""The main process's end of one reward worker: starts it, sends it jobs, hears its answers, ends it.

A plain child process and not `multiprocessing`: that would run the user's main script again in each worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

from podsrl.score.base import Fault
from podsrl.score.worker import Job, Setup, packed
from podsrl.types import Task

_SURROUNDINGS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}
"""One thread each; and sets have the same order in every worker, so that rewards do not depend on which one judged."""


class Pending:
    """One text to be judged by one function."""

    __slots__ = ("done", "name", "outcome", "seconds", "task", "text")

    def __init__(self, name: str, task: Task, text: str) -> None:
        self.name, self.task, self.text = name, task, text
        self.outcome: float | Fault | None = None
        self.seconds = 0.0
        self.done = threading.Lock()
        """Held until there is an outcome, or never will be one."""
        self.done.acquire()


class Member:
    """One worker process.

    Args:
        setup: what it is told first.
        now: seconds on the dispatcher's clock.
    """

    def __init__(self, setup: Setup, now: float) -> None:
        ours, theirs = Pipe()
        main = f"import sys; sys.path[:] = {[*map(str, sys.path)]!r}; from podsrl.score.worker import main; main()"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", main, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what native code in a reward prints, too, must not mix with a command's result
                env=os.environ | _SURROUNDINGS,
                start_new_session=True,  # Ctrl-C in the terminal is for the main process alone
            )
        self.connection: Connection[Any, Any] = ours
        self.connection.send(setup)
        self.jobs: deque[Pending] = deque()
        """Sent and not yet answered, in the order of judging."""
        self.since = now
        """When it began the first of them, or was started."""
        self.is_ready = False
        """Whether it has loaded its functions."""

    def send(self, jobs: Sequence[Pending], now: float) -> None:
        """Hand over jobs; only to an idle worker, so that neither end ever waits for the other to read."""
        tasks = {id(job.task): job.task for job in jobs}
        sent = {identity: packed(task) for identity, task in tasks.items()}  # equal objects are pickled once a message
        self.connection.send([Job(job.name, sent[id(job.task)], job.text) for job in jobs])
        self.jobs.extend(jobs)
        self.since = now

    def messages(self) -> Iterator[Any]:
        """Give what has come in, without waiting.

        Raises:
            EOFError, OSError: the process has ended.
        """
        while self.connection.poll():
            yield self.connection.recv()

    def end(self) -> str:
        """Kill the process, if it has not ended by itself, and say how it ended."""
        self.connection.close()
        try:
            code = self._process.wait(timeout=1.0 if self.jobs else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self.end()
