"""The thread that hands jobs to the reward workers, keeps their time limits, and replaces those that hang or die.

Goes in: a queue of `Pending`. Comes out: each with its outcome.

Callers share no lock with the thread: Ctrl-C may strike a caller between any two of its steps, and must neither be lost
nor leave a lock behind. A deque passes jobs on, a byte in a pipe wakes the thread, and each job's own lock its caller.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

from podsrl.errors import RewardError
from podsrl.score.base import Fault
from podsrl.score.member import Member, Pending
from podsrl.score.worker import Setup

MAX_CHUNK = 32
"""Jobs sent at once: enough that the pipe's cost vanishes, few enough that the work stays balanced."""
START_SECONDS = 120.0
"""For a worker to load its functions."""
_TICK_SECONDS = 0.5


class Dispatcher:
    """Owner of the worker processes. Its thread alone talks to them.

    Args:
        setup: what each worker is told first.
        num_workers: processes.
        timeout_seconds: limit for one function on one completion.
    """

    def __init__(self, setup: Setup, num_workers: int, timeout_seconds: float) -> None:
        self._setup, self._num_workers, self._timeout_seconds = setup, num_workers, timeout_seconds
        self._members: list[Member] = []
        self._queue: deque[Pending] = deque()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed, self._error = False, ""
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._rope, False)
        weakref.finalize(self, _close_pipe, self._bell, self._rope)
        self._owner = os.getpid()
        self._watch, self._now = time.monotonic(), 0.0

    def add(self, jobs: Sequence[Pending]) -> None:
        """Queue jobs; the first call starts the thread, and it the processes."""
        if self._is_closed:
            raise ValueError("the reward workers are closed")
        self._queue.extend(jobs)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reward workers", daemon=True)
                self._thread.start()
        self._ring()

    def outcome(self, job: Pending) -> float | Fault:
        """Wait for a job.

        Raises:
            RewardError: the workers cannot be started, or a task cannot be sent to them.
        """
        while job.outcome is None and not self._error and not self._is_closed:
            if job.done.acquire(timeout=_TICK_SECONDS):
                job.done.release()  # another thread may wait for it too
        if job.outcome is None:
            raise RewardError(self._error or "the reward workers are closed")
        return job.outcome

    def close(self) -> None:
        """End thread and processes. A fork of the owner does nothing: they are not its own."""
        if os.getpid() != self._owner:
            return
        self._is_closed = True
        self._ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)

    def _ring(self) -> None:
        """Wake the thread."""
        with suppress(BlockingIOError):  # a full pipe wakes it too
            os.write(self._rope, b"!")

    def _run(self) -> None:
        try:
            while not self._is_closed:
                while len(self._members) < self._num_workers:
                    self._members.append(Member(self._setup, self._now))
                self._hand_out()
                self._listen()
                self._end_the_late()
        except Exception as error:  # else whoever waits for an outcome would wait for ever
            self._error = str(error) if isinstance(error, RewardError) else f"reward workers: {error!r}"
        finally:
            self._is_closed = self._is_closed or not self._error  # nobody may wait for a thread that ended
            for member in self._members:
                member.kill()
            for job in (*self._queue, *(job for member in self._members for job in member.jobs)):
                job.done.release()  # there will be no outcome: who waits sees the error

    def _hand_out(self) -> None:
        for member in list(self._members):
            if not member.is_ready or member.jobs:
                continue
            size = max(1, min(MAX_CHUNK, len(self._queue) // (2 * self._num_workers)))
            jobs = [self._queue.popleft() for _ in range(min(size, len(self._queue)))]
            if jobs:
                self._send(member, jobs)

    def _send(self, member: Member, jobs: Sequence[Pending]) -> None:
        try:
            member.send(jobs, self._now)
        except OSError:  # it ended while it had nothing to do
            self._put_back(jobs)
            self._dismiss(member)
        except Exception as error:  # pickle raises many kinds
            names = sorted({job.task.id for job in jobs})
            raise RewardError(
                f"the columns of a task among {names} cannot be sent to a worker process ({error}); use plain values, "
                "or a reward f(prompts, completions, **columns), which runs in the main process"
            ) from error

    def _listen(self) -> None:
        """Wait for whatever comes first: an outcome, the end of a process, the bell, or a time limit."""
        is_busy = any(member.jobs or not member.is_ready for member in self._members)
        ready = wait([self._bell, *(member.connection for member in self._members)], _TICK_SECONDS if is_busy else None)
        before, self._watch = self._watch, time.monotonic()
        if is_busy:  # time in which the whole process stood still (Ctrl-Z, a sleeping machine) is nobody's fault
            self._now += min(self._watch - before, 2 * _TICK_SECONDS)
        if self._bell in ready:
            os.read(self._bell, 1 << 16)
        for member in [member for member in self._members if member.connection in ready]:
            try:
                for message in member.messages():
                    self._take(member, message)
            except (EOFError, OSError):
                self._bury(member)

    def _take(self, member: Member, message: Any) -> None:
        member.since = self._now
        if member.is_ready:
            self._settle(member.jobs.popleft(), *message)
        elif message is not None:
            raise RewardError(f"a reward worker could not load {list(self._setup.names)}: {message}")
        member.is_ready = True

    def _settle(self, job: Pending, outcome: float | Fault, seconds: float) -> None:
        job.seconds, job.outcome = seconds, outcome
        job.done.release()

    def _bury(self, member: Member) -> None:
        """A worker has ended by itself: its current job is to blame, the others go to another."""
        jobs, how = list(member.jobs), member.end()
        if not member.is_ready:
            raise RewardError(f"a reward worker died ({how}) while it loaded {list(self._setup.names)}")
        self._members.remove(member)
        if jobs:
            reason = f"reward '{jobs[0].name}': the worker that judged it died ({how})"
            self._settle(jobs[0], Fault(kind="died", reason=reason), self._now - member.since)
            self._put_back(jobs[1:])

    def _end_the_late(self) -> None:
        for member in list(self._members):
            seconds = self._now - member.since
            if not member.is_ready and seconds > START_SECONDS:
                raise RewardError(f"a reward worker needs over {START_SECONDS:g} s to load {list(self._setup.names)}")
            if member.is_ready and member.jobs and seconds > self._timeout_seconds:
                jobs = list(member.jobs)
                self._dismiss(member)
                reason = f"reward '{jobs[0].name}' took longer than {self._timeout_seconds:g} s and was stopped"
                self._settle(jobs[0], Fault(kind="timeout", reason=reason), seconds)
                self._put_back(jobs[1:])

    def _dismiss(self, member: Member) -> None:
        self._members.remove(member)
        member.kill()

    def _put_back(self, jobs: Sequence[Pending]) -> None:
        self._queue.extendleft(reversed(jobs))


def _close_pipe(*ends: int) -> None:
    for end in ends:
        os.close(end)
