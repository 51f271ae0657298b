"""The thread that hands jobs to the reward workers, enforces their time limits, and replaces workers that hang or die.

Callers share no lock with the thread: Ctrl-C may interrupt a caller between any two of its steps, and must neither be
lost nor leave a lock held. A deque passes jobs on, a byte in a pipe wakes the thread, and each job's own lock wakes its
caller.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from podsrl.errors import RewardError
from podsrl.lib.channel import Malformed
from podsrl.lib.machine import num_cores
from podsrl.score.base import Fault, Values
from podsrl.score.rewards import CODE, REMOTE, SLOW
from podsrl.score.workers.handle import WorkerHandle
from podsrl.score.workers.jobs import Job
from podsrl.score.workers.turns import CloseJob
from podsrl.score.workers.worker import Setup

MAX_CHUNK = 32
"""Jobs sent at once: enough that the socket's cost vanishes, few enough that the work stays balanced."""
MAX_WORKERS = 16
"""By default: this many judge thousands of completions per second, and each takes some 100 MB."""
MEMORY_BYTES = 2 << 30
"""Data that a worker of the row form, an environment or tools may hold."""
START_SECONDS = 120.0
"""Limit for a worker to load its functions."""
FULL_LIMITS_PER_STEP = 3
"""Whole time limits that each worker may lose per step; after that many the limit is halved, and again after each
further loss of as many seconds. Thus k endless completions of one step cost time of the order of log k instead of k
limits."""
LEAST_LIMIT_SECONDS = 0.25
"""The limit is not lowered further: an answer that is compared by algebra takes some milliseconds."""
LEAST_PROGRAM_SECONDS = 1.0
"""The same where programs are run: to start two sandboxes takes a tenth of a second, and on a busy machine more."""
_TICK_SECONDS = 0.5
_GRACE_SECONDS = 1.0
"""A worker that holds conversations may end its own calls, and one that runs programs does; the thread ends one that
says nothing for so much longer."""
_MAX_DEATHS = 2
"""Only a completion's text can make a known reward kill its worker; a second try tells that from an outer cause, and
one conversation from another of its worker."""


def default_workers() -> int:
    """One per core, shared out among the processes that torchrun started on this machine; at most `MAX_WORKERS`."""
    return max(1, min(MAX_WORKERS, num_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


class Dispatcher:
    """Owner of the worker processes. Its thread alone talks to them.

    There are `num_workers` of them; 0: `default_workers()`. A worker has `start_seconds` to load its functions, and
    gets `max_chunk` jobs at once, each with a limit of `timeout_seconds`; with `is_capped`, time-outs lower the limit
    until `new_step` (see `FULL_LIMITS_PER_STEP`).
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
        self._setup, self._timeout_seconds = setup, timeout_seconds
        self._num_workers = num_workers or default_workers()
        self._worker = f"{'an' if setup.what == 'environment' else 'a'} {setup.what} worker"
        self._max_chunk, self._start_seconds = max_chunk, start_seconds
        self._halving_seconds = FULL_LIMITS_PER_STEP * timeout_seconds * self._num_workers if is_capped else math.inf
        self._lost_seconds = 0.0
        self._workers: list[WorkerHandle] = []
        self._inbox: deque[Any] = deque()
        """Jobs, and collections of keys that are over, from the callers; what follows is the thread's own."""
        self._queue: deque[Any] = deque()
        self._holders: dict[Any, WorkerHandle] = {}
        """Key of an open conversation -> its worker."""
        runs_programs = not CODE.isdisjoint(setup.names)
        self._least_seconds = LEAST_PROGRAM_SECONDS if runs_programs else LEAST_LIMIT_SECONDS
        self._ends_itself = setup.holds or runs_programs
        self._grace_seconds = _GRACE_SECONDS if self._ends_itself else 0.0
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed, self._error = False, ""
        self._news = threading.Lock()
        """Held until a job is done, for `wait`."""
        self._news.acquire()
        self._wake_receiver, self._wake_sender = os.pipe()
        os.set_blocking(self._wake_sender, False)
        weakref.finalize(self, _close_pipe, self._wake_receiver, self._wake_sender)
        self._owner = os.getpid()
        self._last_poll, self._now = time.monotonic(), 0.0

    def add(self, jobs: Sequence[Job]) -> None:
        """Queue jobs. The first call starts the thread, which starts the processes."""
        if self._is_closed:
            raise ValueError("the reward workers are closed")
        self._inbox.extend(jobs)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reward workers", daemon=True)
                self._thread.start()
        self._wake()

    @property
    def num_open(self) -> int:
        """Conversations that the workers hold."""
        return len(self._holders)

    def end(self, keys: Collection[Any]) -> None:
        """Close the conversations of these keys, where they are open; what is asked later begins a new one."""
        if self._thread is not None and not self._is_closed:
            self._inbox.append(keys)
            self._wake()

    def new_step(self) -> None:
        """Set the seconds that time-outs have cost back to 0."""
        self._lost_seconds = 0.0

    def is_done(self, job: Job) -> bool:
        """Whether `outcome` waits no more for it."""
        return job.outcome is not None or bool(self._error) or self._is_closed

    def wait(self, jobs: Sequence[Job], seconds: float) -> None:
        """Wait until one of these is done, or so many seconds are over."""
        end = time.monotonic() + seconds
        while not any(map(self.is_done, jobs)) and (left := end - time.monotonic()) > 0:
            self._news.acquire(timeout=min(left, _TICK_SECONDS))  # another thread may have taken the news

    def outcome(self, job: Job) -> Any:
        """Wait for a job. RewardError: the workers cannot be started, or its function breaks its contract."""
        while not self.is_done(job):
            if job.done.acquire(timeout=_TICK_SECONDS):
                job.done.release()  # another thread may wait for it too
        if job.outcome is None:
            raise RewardError(self._error or "the reward workers are closed")
        if isinstance(job.outcome, RewardError):
            raise job.outcome
        return job.outcome

    def close(self) -> None:
        """End thread and processes. In a fork of the owner this does nothing: the processes are not its own."""
        if os.getpid() != self._owner:
            return
        self._is_closed = True
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0 + self._setup.holds * self._timeout_seconds)

    def _close_all(self) -> None:
        """Close the conversations that are open, within the time of one call."""
        self._inbox.clear()
        self._queue.clear()
        self._end_keys(frozenset(self._holders))
        end = time.monotonic() + self._timeout_seconds
        while time.monotonic() < end and any(
            isinstance(job, CloseJob) for worker in self._workers for job in (*worker.queue, *worker.jobs.values())
        ):
            self._send_jobs()
            self._wait()
            self._enforce_limits()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # a full pipe wakes the thread too
            os.write(self._wake_sender, b"!")

    def _run(self) -> None:
        try:
            while not self._is_closed:
                while len(self._workers) < self._num_workers:
                    self._workers.append(WorkerHandle(self._setup, self._now))
                self._send_jobs()
                self._wait()
                self._enforce_limits()
        except Exception as error:  # otherwise a caller that waits for an outcome would wait for ever
            self._error = str(error) if isinstance(error, RewardError) else f"reward workers: {error!r}"
        finally:
            self._is_closed = self._is_closed or not self._error  # no caller may wait for a thread that has ended
            waiting = [job for job in (*self._inbox, *self._queue) if isinstance(job, Job)]
            waiting += [job for worker in self._workers for job in (*worker.queue, *worker.jobs.values())]
            with suppress(Exception):
                self._close_all()
            for worker in self._workers:
                worker.kill()
            for job in waiting:
                self._wake_callers(job)  # there will be no outcome: a waiting caller raises the error

    def _send_jobs(self) -> None:
        while self._inbox:
            job = self._inbox.popleft()
            if isinstance(job, Job):
                holder = self._holders.get(job.key)
                (self._queue if holder is None else holder.queue).append(job)
            else:
                self._end_keys(job)
        for worker in sorted(self._workers, key=lambda worker: (len(worker.jobs), len(worker.keys))):
            if worker.is_ready and (jobs := self._next_jobs(worker)):
                limit = self._limit_seconds()
                if not worker.jobs:
                    worker.since, worker.limit_seconds = self._now, 0.0
                worker.limit_seconds = max(worker.limit_seconds, limit)
                for key in (job.key for job in jobs if job.key is not None):
                    self._holders[key] = worker
                    worker.keys.add(key)
                with suppress(OSError):  # it ended while it was idle, which the next wait reports
                    worker.send(jobs, limit)

    def _next_jobs(self, worker: WorkerHandle) -> list[Job]:
        """What the worker gets now. A job whose worker ended while that did others too has one to itself."""
        if not self._setup.holds:
            return [] if worker.jobs else self._chunk()
        if len(worker.jobs) == 1 and any(job.num_deaths for job in worker.jobs.values()):
            return []
        if self._queue and self._queue[0].num_deaths and not worker.jobs:
            return [self._queue.popleft()]
        jobs = [*worker.queue]
        worker.queue.clear()
        return jobs if jobs or len(worker.begun) < len(worker.jobs) else self._chunk()

    def _chunk(self) -> list[Job]:
        jobs: list[Job] = []
        size = max(1, min(self._max_chunk, len(self._queue) // (2 * self._num_workers)))
        while self._queue and len(jobs) < size and not (self._setup.holds and self._queue[0].num_deaths):
            jobs.append(self._queue.popleft())
        return jobs

    def _end_keys(self, keys: Collection[Any]) -> None:
        """Close these conversations, and drop what they were to hear."""
        for queue in (self._queue, *(worker.queue for worker in self._workers)):
            for job in [job for job in queue if job.key in keys]:
                queue.remove(job)
                self._drop(job)
        for worker in self._workers:
            for job in worker.jobs.values():
                job.is_over = job.is_over or job.key in keys
        for key in keys:
            self._close_key(key)

    def _close_key(self, key: Any) -> None:
        if (holder := self._holders.pop(key, None)) is not None:
            holder.keys.discard(key)
            holder.queue.append(CloseJob(self._setup.names[0], key))

    def _drop(self, job: Job) -> None:
        job.is_over = True
        reason = f"{self._setup.what} '{job.name}' was not asked: the rollout was over"
        self._finish(job, job.failed(Fault(kind="died", reason=reason)), 0.0)

    def _limit_seconds(self) -> float:
        lowered = math.ldexp(self._timeout_seconds, -int(self._lost_seconds / self._halving_seconds))
        return max(lowered, min(self._timeout_seconds, self._least_seconds))

    def _wait(self) -> None:
        """Wait for the first event: an answer, the end of a process, a wake-up, or a time limit."""
        poll, workers = select.poll(), {worker.channel.fileno(): worker for worker in self._workers}
        poll.register(self._wake_receiver, select.POLLIN)
        for descriptor, worker in workers.items():
            poll.register(descriptor, select.POLLIN | (select.POLLOUT if worker.channel.has_unsent else 0))
        seconds = self._seconds_to_wait()
        ready = dict(poll.poll(None if seconds is None else 1000 * seconds))
        before, self._last_poll = self._last_poll, time.monotonic()
        if seconds is not None:  # time in which the whole process was suspended (Ctrl-Z, sleep) does not count
            self._now += min(self._last_poll - before, 2 * _TICK_SECONDS)
        if self._wake_receiver in ready:
            os.read(self._wake_receiver, 1 << 16)
        for descriptor in ready.keys() & workers.keys():
            self._receive(workers[descriptor])

    def _seconds_to_wait(self) -> float | None:
        """Until the next time limit may be reached; None where all workers are idle."""
        busy = [worker for worker in self._workers if worker.jobs or not worker.is_ready]
        ends = (worker.since + worker.limit_seconds + self._grace_seconds for worker in busy if worker.is_ready)
        left = [end - self._now for end in ends]
        return max(0.01, min([_TICK_SECONDS, *left])) if busy else None

    def _receive(self, worker: WorkerHandle) -> None:
        channel = worker.channel
        try:
            channel.flush()
            for frame in channel.read():
                if worker.channel is channel:  # otherwise an earlier message has ended this worker
                    self._handle(worker, frame.head)
        except Malformed as error:
            worker.stop()
            self._handle_death(worker, f"it sent {error}")
        except (EOFError, OSError):
            self._handle_death(worker, worker.reap())

    def _handle(self, worker: WorkerHandle, message: Any) -> None:
        worker.since = self._now
        if not self._ends_itself:
            worker.limit_seconds = self._limit_seconds()
        match message:
            case "ready" if not worker.is_ready:
                worker.is_ready = True
            case {"failed": str(reason)} if not worker.is_ready:
                raise RewardError(f"{self._worker} could not load {list(self._setup.names)}: {reason[:2000]}")
            case [int(number)] if self._setup.holds and number in worker.jobs:
                worker.begun.add(number)
            case [int(number), float(seconds), body] if (
                number in (worker.jobs if self._setup.holds else worker.under_way) and 0 <= seconds < math.inf
            ):
                match body:
                    case {"late": float(limit)} if self._setup.holds:
                        self._lost_seconds += seconds / len(worker.jobs)  # those wait at the same time
                        outcome = worker.jobs[number].failed(self._timeout(worker.jobs[number], limit))
                    case _:
                        outcome = worker.jobs[number].read(body)
                job = worker.take_back(number)
                if is_late := job.name in CODE - REMOTE and seconds >= worker.limit_seconds:
                    self._lost_seconds += seconds
                    if isinstance(outcome, Values) and not outcome.faults:
                        outcome = replace(outcome, stopped={0: self._timeout(job, worker.limit_seconds)})
                self._drop(job) if job.is_over else self._finish(job, outcome, seconds)
                has_limit = self._setup.memory_bytes is not None
                is_spent = has_limit and any(fault.kind == "exhausted" for fault in job.faults)
                if is_late or is_spent:  # the next has the limit of now, and all memory
                    self._lost_seconds += 0.0 if is_late else seconds
                    worker.stop()
                    self._replace(worker, list(worker.jobs.values()))
            case _:
                raise Malformed("what is no answer")

    def _finish(self, job: Job, outcome: Any, seconds: float) -> None:
        job.seconds, job.outcome = seconds, outcome
        if job.is_last:
            self._close_key(job.key)
        self._wake_callers(job)

    def _wake_callers(self, job: Job) -> None:
        for lock in (job.done, self._news):
            with suppress(RuntimeError):  # nobody has taken the last news yet
                lock.release()

    def _handle_death(self, worker: WorkerHandle, how: str) -> None:
        """A worker has ended by itself."""
        if not worker.is_ready:
            raise RewardError(f"{self._worker} died ({how}) while it loaded {list(self._setup.names)}")

        def fault(job: Job) -> Fault | None:
            reason = f"{self._setup.what} '{job.name}': its worker died ({how})"
            is_certain = not (self._setup.holds or job.name in SLOW) or job.num_deaths == _MAX_DEATHS
            return Fault(kind="died", reason=reason) if is_certain else None

        self._blame(worker, fault)

    def _enforce_limits(self) -> None:
        for worker in list(self._workers):
            seconds, limit = self._now - worker.since, worker.limit_seconds
            if not worker.is_ready and seconds > self._start_seconds:
                raise RewardError(
                    f"{self._worker} needs over {self._start_seconds:g} s to load {list(self._setup.names)}"
                )
            if worker.is_ready and worker.jobs and seconds > limit + self._grace_seconds:
                worker.stop()
                self._blame(worker, partial(self._timeout, limit_seconds=limit))

    def _blame(self, worker: WorkerHandle, fault: Callable[[Job], Fault | None]) -> None:
        """A worker has ended: what it worked on is the cause, and has this fault, or None for another try.

        Where that were several jobs, each is tried again alone. The others go to another worker.
        """
        seconds = self._now - worker.since
        begun = [worker.take_back(number) for number in worker.under_way]
        for job in begun:
            job.num_deaths += 1
        if begun:
            self._lost_seconds += seconds
        if len(begun) == 1 and (found := fault(begun[0])) is not None:
            job = begun.pop()
            self._finish(job, job.failed(found), seconds)
        self._replace(worker, [*begun, *worker.jobs.values()])

    def _timeout(self, job: Job, limit_seconds: float) -> Fault:
        is_hurried = limit_seconds < self._timeout_seconds
        why = f" (lowered from {self._timeout_seconds:g} s by this step's other time-outs)" if is_hurried else ""
        reason = f"{self._setup.what} '{job.name}' took longer than {limit_seconds:g} s{why} and was stopped"
        return Fault(kind="timeout", reason=reason, is_hurried=is_hurried)

    def _replace(self, worker: WorkerHandle, jobs: Sequence[Job]) -> None:
        """Start a new worker in place of one that has ended; its jobs are the next to be handed out."""
        self._holders = {key: holder for key, holder in self._holders.items() if holder is not worker}
        left = [*jobs, *worker.queue]
        for job in left:
            if job.is_over:
                self._drop(job)
        self._queue.extendleft(job for job in reversed(left) if not job.is_over)
        if not worker.restart(self._now):
            self._workers.remove(worker)


def _close_pipe(*ends: int) -> None:
    for end in ends:
        os.close(end)
