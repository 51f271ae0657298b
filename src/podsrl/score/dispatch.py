"""The thread that hands jobs to the reward workers, keeps their time limits, and replaces those that hang or die.

Goes in: a queue of `Job`. Comes out: each with its outcome.

Callers share no lock with the thread: Ctrl-C may strike a caller between any two of its steps, and must neither be lost
nor leave a lock behind. A deque passes jobs on, a byte in a pipe wakes the thread, and each job's own lock its caller.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from podsrl.errors import RewardError
from podsrl.score.base import Fault
from podsrl.score.find import IN_WORKERS
from podsrl.score.job import Job
from podsrl.score.member import Member
from podsrl.score.wire import Malformed
from podsrl.score.worker import Setup

MAX_CHUNK = 32
"""Jobs sent at once: enough that the socket's cost vanishes, few enough that the work stays balanced."""
START_SECONDS = 120.0
"""For a worker to load its functions."""
FULL_LIMITS_PER_STEP = 3
"""Whole time limits that each worker may lose in a step; after that many the limit is halved, and again after each as
many seconds. Thus k endless completions of one step cost time of the order of log k, where they would cost k limits.
"""
LEAST_LIMIT_SECONDS = 0.25
"""The limit is not lowered further: an answer that is compared by algebra takes some milliseconds."""
_TICK_SECONDS = 0.5
_MAX_DEATHS = 2
"""A known reward kills no worker but by the completion's text, so a second try tells that from an outer cause."""


class Dispatcher:
    """Owner of the worker processes. Its thread alone talks to them.

    Args:
        setup: what each worker is told first.
        num_workers: processes.
        timeout_seconds: limit for one job.
        max_chunk: jobs sent to a worker at once.
        start_seconds: limit for loading the functions.
        is_capped: whether time-outs lower the limit until `new_step` is called; see `FULL_LIMITS_PER_STEP`.
    """

    def __init__(
        self,
        setup: Setup,
        num_workers: int,
        timeout_seconds: float,
        *,
        max_chunk: int = MAX_CHUNK,
        start_seconds: float = START_SECONDS,
        is_capped: bool = False,
    ) -> None:
        self._setup, self._num_workers, self._timeout_seconds = setup, num_workers, timeout_seconds
        self._max_chunk, self._start_seconds = max_chunk, start_seconds
        self._step_seconds = FULL_LIMITS_PER_STEP * timeout_seconds * num_workers if is_capped else math.inf
        self._lost_seconds = 0.0
        self._members: list[Member] = []
        self._queue: deque[Any] = deque()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed, self._error = False, ""
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._rope, False)
        weakref.finalize(self, _close_pipe, self._bell, self._rope)
        self._owner = os.getpid()
        self._watch, self._now = time.monotonic(), 0.0

    def add(self, jobs: Sequence[Job]) -> None:
        """Queue jobs; the first call starts the thread, and it the processes."""
        if self._is_closed:
            raise ValueError("the reward workers are closed")
        self._queue.extend(jobs)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reward workers", daemon=True)
                self._thread.start()
        self._ring()

    def new_step(self) -> None:
        """Forget the seconds that time-outs have cost."""
        self._lost_seconds = 0.0

    def outcome(self, job: Job) -> Any:
        """Wait for a job.

        Raises:
            RewardError: the workers cannot be started.
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
            size = max(1, min(self._max_chunk, len(self._queue) // (2 * self._num_workers)))
            jobs = [self._queue.popleft() for _ in range(min(size, len(self._queue)))]
            if jobs:
                member.since, member.limit_seconds = self._now, self._limit_seconds()
                with suppress(OSError):  # it ended while it had nothing to do, which is heard next
                    member.send(jobs)

    def _limit_seconds(self) -> float:
        lowered = math.ldexp(self._timeout_seconds, -int(self._lost_seconds / self._step_seconds))
        return max(lowered, min(self._timeout_seconds, LEAST_LIMIT_SECONDS))

    def _listen(self) -> None:
        """Wait for whatever comes first: an answer, the end of a process, the bell, or a time limit."""
        poll, members = select.poll(), {member.lines.fileno(): member for member in self._members}
        poll.register(self._bell, select.POLLIN)
        for descriptor, member in members.items():
            poll.register(descriptor, select.POLLIN | (select.POLLOUT if member.lines.has_unsent else 0))
        seconds = self._seconds_to_wait()
        ready = dict(poll.poll(None if seconds is None else 1000 * seconds))
        before, self._watch = self._watch, time.monotonic()
        if seconds is not None:  # time in which the whole process stood still (Ctrl-Z, sleep) is nobody's fault
            self._now += min(self._watch - before, 2 * _TICK_SECONDS)
        if self._bell in ready:
            os.read(self._bell, 1 << 16)
        for descriptor in ready.keys() & members.keys():
            self._hear(members[descriptor])

    def _seconds_to_wait(self) -> float | None:
        """Until the next time limit may be reached; None where no worker is at work."""
        busy = [member for member in self._members if member.jobs or not member.is_ready]
        left = [member.since + member.limit_seconds - self._now for member in busy if member.is_ready]
        return max(0.01, min([_TICK_SECONDS, *left])) if busy else None

    def _hear(self, member: Member) -> None:
        lines = member.lines
        try:
            lines.flush()
            for message in lines.read():
                if member.lines is lines:  # else an answer has made an end of the worker
                    self._take(member, message)
        except Malformed as error:
            member.stop()
            self._end(member, f"it sent {error}")
        except (EOFError, OSError):
            self._end(member, member.bury())

    def _take(self, member: Member, message: Any) -> None:
        member.since, member.limit_seconds = self._now, self._limit_seconds()
        match message:
            case "ready" if not member.is_ready:
                member.is_ready = True
            case {"failed": str(reason)} if not member.is_ready:
                raise RewardError(f"a reward worker could not load {list(self._setup.names)}: {reason[:2000]}")
            case [int(number), float(seconds), body] if member.jobs and number == member.first and seconds >= 0:
                outcome = member.jobs[0].read(body)
                member.first += 1
                self._settle(member.jobs.popleft(), outcome, seconds)
                if isinstance(outcome, Fault) and outcome.kind == "exhausted":  # the next row begins with all memory
                    self._lost_seconds += seconds
                    member.stop()
                    self._replace(member, list(member.jobs))
            case _:
                raise Malformed("what is no answer")

    def _settle(self, job: Job, outcome: Any, seconds: float) -> None:
        job.seconds, job.outcome = seconds, outcome
        job.done.release()

    def _end(self, member: Member, how: str) -> None:
        """A worker has ended by itself: its current job is to blame, the others go to another."""
        jobs = list(member.jobs)
        if not member.is_ready:
            raise RewardError(f"a reward worker died ({how}) while it loaded {list(self._setup.names)}")
        if jobs:
            job, seconds = jobs[0], self._now - member.since
            job.num_deaths += 1
            self._lost_seconds += seconds
            if job.name not in IN_WORKERS or job.num_deaths == _MAX_DEATHS:
                reason = f"reward '{job.name}': the worker that judged it died ({how})"
                self._settle(jobs.pop(0), job.failed(Fault(kind="died", reason=reason)), seconds)
        self._replace(member, jobs)

    def _end_the_late(self) -> None:
        for member in list(self._members):
            seconds = self._now - member.since
            if not member.is_ready and seconds > self._start_seconds:
                raise RewardError(
                    f"a reward worker needs over {self._start_seconds:g} s to load {list(self._setup.names)}"
                )
            if member.is_ready and member.jobs and seconds > member.limit_seconds:
                job, *others = member.jobs
                member.stop()
                self._lost_seconds += seconds
                self._settle(job, job.failed(self._timeout(job, member.limit_seconds)), seconds)
                self._replace(member, others)

    def _timeout(self, job: Job, limit_seconds: float) -> Fault:
        is_hurried = limit_seconds < self._timeout_seconds
        why = f" (lowered from {self._timeout_seconds:g} s by this step's other time-outs)" if is_hurried else ""
        reason = f"reward '{job.name}' took longer than {limit_seconds:g} s{why} and was stopped"
        return Fault(kind="timeout", reason=reason, is_hurried=is_hurried)

    def _replace(self, member: Member, jobs: Sequence[Job]) -> None:
        """Start a new worker in place of one that has ended; its jobs are the next to be handed out."""
        self._queue.extendleft(reversed(jobs))
        if not member.restart(self._now):
            self._members.remove(member)


def _close_pipe(*ends: int) -> None:
    for end in ends:
        os.close(end)
