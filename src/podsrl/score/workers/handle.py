"""The main process's end of one reward worker: starts it, sends it jobs, receives its answers, ends it."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import Any

from podsrl.lib.below import kill_below
from podsrl.lib.channel import Channel
from podsrl.lib.child import Child, how_it_ended
from podsrl.score.sandbox.process import FOLDER, PREFIX, WEAKER
from podsrl.score.workers.jobs import Job
from podsrl.score.workers.worker import Setup

_SAME_HASHES = {"PYTHONHASHSEED": "0"}
"""Sets have the same order in every worker, so that rewards do not depend on which one judged."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_EXIT_CODE_SECONDS = 2.0
"""Limit for the supervisor to report how a worker ended."""
_STDERR = 2
"""What a reward prints must not mix with what a command prints as its result."""


class WorkerHandle:
    """One worker process, below a supervisor of its own; `now` is in seconds on the dispatcher's clock."""

    def __init__(self, setup: Setup, now: float) -> None:
        self._folder = ""
        """Of the programs that it runs in the weaker mode; the supervisor empties it when a worker has ended."""
        if any(name.startswith(WEAKER) for name in setup.names):
            self._folder = tempfile.mkdtemp(prefix=PREFIX)
            os.chmod(self._folder, 0o711)  # root's programs, which are another user's, go through it
        own = _SAME_HASHES | {FOLDER: self._folder}
        self._supervisor = Child(
            "podsrl.score.workers.supervisor:main",
            os.getpid(),
            asdict(setup),
            variables=os.environ | own | ({} if setup.memory_bytes is None else _ONE_THREAD),
            output=_STDERR,
            ends_itself=True,
        )
        self._is_lost = False
        self._holds = setup.holds
        self.queue: deque[Any] = deque()
        """Jobs of the conversations that it holds, not yet sent."""
        self.keys: set[Any] = set()
        """Of the conversations that it holds."""
        self.jobs: dict[int, Any] = {}
        """Number -> job, of those sent and not yet answered; without conversations in the order of judging."""
        self.begun: set[int] = set()
        """Numbers of the jobs of conversations that it said to have begun."""
        self._num_sent = 0
        self._start_worker(now)

    def _start_worker(self, now: float) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._supervisor.channel.send(descriptor=theirs.fileno(), seconds=_EXIT_CODE_SECONDS)
        self.channel = Channel(ours, max_bytes=1 << 16)
        for each in (self.queue, self.keys, self.jobs, self.begun):
            each.clear()
        self.since, self.limit_seconds = now, 0.0
        """When it began the first job, or was started; and how long that job may take."""
        self.is_ready = False
        """Whether it has loaded its functions."""

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid

    @property
    def under_way(self) -> list[int]:
        """Numbers of the jobs that it works on."""
        return [*self.begun] if self._holds else [*islice(self.jobs, 1)]

    def send(self, jobs: Sequence[Job], seconds: float) -> None:
        """Send jobs with the limit of a call. The worker is idle, or holds conversations. OSError: it has ended."""
        first, self._num_sent = self._num_sent, self._num_sent + len(jobs)
        self.jobs |= dict(enumerate(jobs, first))
        self.channel.max_bytes = max(job.max_answer_bytes for job in self.jobs.values())
        self.channel.put([first, seconds], pickle.dumps([job.content for job in jobs]))

    def take_back(self, number: int) -> Any:
        """The job of that number, which the worker has no more."""
        self.begun.discard(number)
        return self.jobs.pop(number)

    def reap(self) -> str:
        """Clean up after a worker that has closed its socket. How it ended, for messages."""
        code = self._exit_code()
        if code is None:
            self.stop()
            return "it closed its connection"
        self.channel.close()
        return how_it_ended(code)

    def stop(self) -> None:
        """Kill the worker and all that it started; the supervisor stays."""
        kill_below(self._supervisor.pid)
        self.channel.close()
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
        self._supervisor.kill()
        self.channel.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _exit_code(self) -> int | None:
        """The worker's exit code; None where the supervisor does not report it."""
        with suppress(OSError):
            if (frame := self._supervisor.channel.receive(_EXIT_CODE_SECONDS)) is not None:
                return int(frame.head)
        return None
