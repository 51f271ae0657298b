"""The main process's end of one reward worker: starts it, sends it jobs, hears its answers, ends it.

A plain child process and not `multiprocessing`: that would run the user's main script again in each worker.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from podsrl.score.job import Job
from podsrl.score.process_tree import kill_below
from podsrl.score.wire import Lines
from podsrl.score.worker import Setup

_SAME_HASHES = {"PYTHONHASHSEED": "0"}
"""Sets have the same order in every worker, so that rewards do not depend on which one judged."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_PATIENCE_SECONDS = 2.0
"""For the keeper to say how a worker ended."""


class Member:
    """One worker process, below a keeper (`keeper.py`) of its own.

    Args:
        setup: what it is told first.
        now: seconds on the dispatcher's clock.
    """

    def __init__(self, setup: Setup, now: float) -> None:
        self._control, theirs = socket.socketpair()
        main = f"import sys; sys.path[:] = {[*map(str, sys.path)]!r}; from podsrl.score.keeper import main; main()"
        with theirs:
            self._keeper = subprocess.Popen(
                [sys.executable, "-P", "-c", main, str(theirs.fileno()), str(os.getpid()), json.dumps(asdict(setup))],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what native code in a reward prints, too, must not mix with a command's result
                env=os.environ | _SAME_HASHES | ({} if setup.memory_bytes is None else _ONE_THREAD),
                start_new_session=True,  # Ctrl-C in the terminal is for the main process alone
            )
        self._is_lost = False
        self.jobs: deque[Any] = deque()
        """Sent and not yet answered, in the order of judging."""
        self.first = 0
        """Number of the first of them."""
        self._begin(now)

    def _begin(self, now: float) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"+"], [theirs.fileno()])
        self.lines = Lines(ours)
        self.jobs.clear()
        self.since, self.limit_seconds = now, 0.0
        """When it began the first job, or was started; and how long that one may take."""
        self.is_ready = False
        """Whether it has loaded its functions."""

    def send(self, jobs: Sequence[Job]) -> None:
        """Hand over jobs of one kind, to an idle worker.

        Raises:
            OSError: the worker has ended.
        """
        self.lines.max_line_bytes = max(job.max_answer_bytes for job in jobs)
        self.jobs.extend(jobs)
        self.lines.write(jobs[0].line(jobs, self.first))

    def bury(self) -> str:
        """Clear up after a worker that has closed its socket, and say how it ended."""
        code = self._exit_code()
        if code is None:
            self.stop()
            return "it closed its connection"
        self.lines.close()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        """End the worker and all that it started, at once; the keeper stays."""
        kill_below(self._keeper.pid)
        self.lines.close()
        self._is_lost = self._exit_code() is None

    def restart(self, now: float) -> bool:
        """Start a new worker after the end of the old one. False: the keeper is gone too, or does not answer."""
        if not self._is_lost:
            with suppress(OSError):
                self._begin(now)
                return True
        self.kill()
        return False

    def kill(self) -> None:
        """End everything at once."""
        kill_below(self._keeper.pid)
        self._keeper.kill()
        self._keeper.wait()
        self.lines.close()
        self._control.close()

    def _exit_code(self) -> int | None:
        """Of the worker; None where the keeper does not say."""
        self._control.settimeout(_PATIENCE_SECONDS)
        said = b""
        try:
            while not said.endswith(b"\n"):
                byte = self._control.recv(1)
                if not byte:
                    return None
                said += byte
        except OSError:
            return None
        return int(said)
