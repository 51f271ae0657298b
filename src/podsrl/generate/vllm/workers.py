"""Threads that each ask for one rollout at a time, those that are submitted together by their priority."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from podsrl.generate.base import Request
from podsrl.lib.watch import Key
from podsrl.types import Rollout


@dataclass(eq=False, slots=True)
class Job:
    """One rollout to be asked for."""

    request: Request
    index: int
    priority: int
    version: int = field(default=0, init=False)
    """Of the weights under which it was asked for."""
    name: str = field(default="", init=False)
    """Under which it runs on the server; "": it does not."""
    is_aborted: bool = field(default=False, init=False)
    is_done: bool = field(default=False, init=False)

    @property
    def key(self) -> Key:
        """Group's id and rollout's index."""
        return self.request.id, self.index


class Workers:
    """Runs jobs in threads, which are started as they are needed.

    Args:
        run: gives a job's completion.
        tell: gets each job that has ended, with its completion or the error that ended it, from its thread.
        num_threads: at most.
    """

    def __init__(
        self,
        run: Callable[[Job], Rollout],
        tell: Callable[[Job, Rollout | BaseException], None],
        num_threads: int,
    ) -> None:
        self._run, self._tell, self._num_threads = run, tell, num_threads
        lock = threading.Lock()
        self._has_work, self._has_ended = threading.Condition(lock), threading.Condition(lock)
        self._waiting: deque[Job] = deque()
        self._open: dict[Job, None] = {}
        self._num_started = self._num_idle = 0
        self._is_closed = False
        self.most_running = 0
        """Largest number of jobs that ran at once since it was set to 0."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Run these as soon as there is a thread for them, after those that were submitted before."""
        with self._has_work:
            self._waiting += sorted(jobs, key=lambda job: job.priority)
            self._open |= dict.fromkeys(jobs)
            while self._num_started < self._num_threads and self._num_idle < len(self._waiting):
                threading.Thread(target=self._work, daemon=True, name="vllm-request").start()
                self._num_started += 1
                self._num_idle += 1
            self._has_work.notify(len(self._waiting))

    def abort(self, wanted: Callable[[Job], bool]) -> tuple[list[Job], list[Job]]:
        """Mark open jobs as aborted.

        Returns:
            Those that waited, which are done now and of which nothing is told, and those that run.
        """
        with self._has_ended:
            found = [job for job in self._open if wanted(job)]
            for job in found:
                job.is_aborted = True
            waited = [job for job in self._waiting if job.is_aborted]
            self._waiting = deque(job for job in self._waiting if not job.is_aborted)
            for job in waited:
                self._end(job)
            return waited, [job for job in found if not job.is_done]

    def wait(self, is_over: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so, asked whenever a job ends; whether it is so after these seconds."""
        with self._has_ended:
            return self._has_ended.wait_for(is_over, seconds)

    def close(self) -> None:
        """End the threads, each after the job that it runs; jobs that wait are dropped."""
        with self._has_work:
            self._is_closed = True
            self._has_work.notify_all()

    def _work(self) -> None:
        while True:
            with self._has_work:
                self._has_work.wait_for(lambda: bool(self._waiting) or self._is_closed)
                if self._is_closed:
                    return
                job = self._waiting.popleft()
                self._num_idle -= 1
                self.most_running = max(self.most_running, self._num_started - self._num_idle)
            try:
                found: Rollout | BaseException = self._run(job)
            except BaseException as error:
                found = error
            with self._has_ended:
                self._num_idle += 1
                self._end(job)
            self._tell(job, found)

    def _end(self, job: Job) -> None:
        job.is_done = True
        del self._open[job]
        self._has_ended.notify_all()
