"""The main process's end of one reward worker: starts it, sends it jobs, receives its answers, ends it.

The worker is a plain child process: `multiprocessing` would run the user's main script again in each worker.
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

from podsrl.lib.below import kill_below
from podsrl.score.workers.jobs import Job
from podsrl.score.workers.wire import Lines
from podsrl.score.workers.worker import Setup

_SAME_HASHES = {"PYTHONHASHSEED": "0"}
"""Sets have the same order in every worker, so that rewards do not depend on which one judged."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_EXIT_CODE_SECONDS = 2.0
"""Limit for the supervisor to report how a worker ended."""


class WorkerHandle:
    """One worker process, below a supervisor of its own; `now` is in seconds on the dispatcher's clock."""

    def __init__(self, setup: Setup, now: float) -> None:
        self._control, theirs = socket.socketpair()
        start = "from podsrl.score.workers.supervisor import main; main()"
        main = f"import sys; sys.path[:] = {[*map(str, sys.path)]!r}; {start}"
        with theirs:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", "-c", main, str(theirs.fileno()), str(os.getpid()), json.dumps(asdict(setup))],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what native code in a reward prints must not mix with a command's result either
                env=os.environ | _SAME_HASHES | ({} if setup.memory_bytes is None else _ONE_THREAD),
                start_new_session=True,  # Ctrl-C in the terminal is for the main process alone
            )
        self._is_lost = False
        self.jobs: deque[Any] = deque()
        """Sent and not yet answered, in the order of judging."""
        self.first = 0
        """Number of the first of them."""
        self._start_worker(now)

    def _start_worker(self, now: float) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"+"], [theirs.fileno()])
        self.lines = Lines(ours)
        self.jobs.clear()
        self.since, self.limit_seconds = now, 0.0
        """When it began the first job, or was started; and how long that job may take."""
        self.is_ready = False
        """Whether it has loaded its functions."""

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid

    def send(self, jobs: Sequence[Job]) -> None:
        """Send jobs of one kind to the worker, which is idle. OSError: the worker has ended."""
        self.lines.max_line_bytes = max(job.max_answer_bytes for job in jobs)
        self.jobs.extend(jobs)
        self.lines.write(jobs[0].line(jobs, self.first))

    def reap(self) -> str:
        """Clean up after a worker that has closed its socket. How it ended, for messages."""
        code = self._exit_code()
        if code is None:
            self.stop()
            return "it closed its connection"
        self.lines.close()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        """Kill the worker and all that it started; the supervisor stays."""
        kill_below(self._supervisor.pid)
        self.lines.close()
        self._is_lost = self._exit_code() is None

    def restart(self, now: float) -> bool:
        """Start a new worker after the end of the old one. False: the supervisor has ended too, or does not answer."""
        if not self._is_lost:
            with suppress(OSError):
                self._start_worker(now)
                return True
        self.kill()
        return False

    def kill(self) -> None:
        """Kill the worker, all that it started, and the supervisor."""
        kill_below(self._supervisor.pid)
        self._supervisor.kill()
        self._supervisor.wait()
        self.lines.close()
        self._control.close()

    def _exit_code(self) -> int | None:
        """The worker's exit code; None where the supervisor does not report it."""
        self._control.settimeout(_EXIT_CODE_SECONDS)
        received = b""
        try:
            while not received.endswith(b"\n"):
                byte = self._control.recv(1)
                if not byte:
                    return None
                received += byte
        except OSError:
            return None
        return int(received)
