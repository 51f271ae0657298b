"""What answers the model's turns: a user's function, conversations that it starts, or tools that the model calls.

All of it runs in workers, within limits.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterable, Sequence
from itertools import count

from podsrl.errors import UsageError
from podsrl.score.base import Fault
from podsrl.score.rewards import is_importable_by_workers
from podsrl.score.workers.dispatcher import MEMORY_BYTES, Dispatcher
from podsrl.score.workers.jobs import write_task
from podsrl.score.workers.tools import find_replies, find_tools
from podsrl.score.workers.turns import WANTED, HearJob, Key, Reply, TurnJob, is_start
from podsrl.score.workers.worker import Setup
from podsrl.types import Task


class Environment:
    """Asks `reply(task, turns)`, or the conversations that `start(task)` gives, one per rollout.

    Replies are made while the caller does something else, such as generating. Whatever the function does, one rollout
    alone is lost: a call that raises, takes too long, ends its process or returns no text is a `Fault`. The workers'
    limits are those of rewards; they start with the first `ask`.

    The caller says all turns each time. A worker that holds the rollout's conversation, with all but the last turn
    heard, lets that hear the last one; otherwise a new one hears all again. So nothing is lost with a worker, a step
    or a run. A conversation is closed when it has ended, when its rollout is `over`, and with the environment.

    Args:
        name: "module:function", or a known name.
        tools: in its place, the functions that the model may call, "module:function" each.
        workers: processes; 0: one per core.
        timeout_seconds: limit of one call.

    Raises:
        UsageError: there is no such function, it takes other arguments, or a worker process cannot import it.
    """

    def __init__(
        self, name: str = "", *, tools: Sequence[str] = (), workers: int = 0, timeout_seconds: float = 10.0
    ) -> None:
        names, what = (tuple(tools), "tool") if tools else ((name,), "environment")
        self.option = f"task.tools = {[*tools]}" if tools else f"task.environment = {name!r}"
        """What named it, with its value, for messages."""
        found = find_replies(what, names)
        [self.name] = found
        for each in names:
            if ":" in each and not is_importable_by_workers(each):
                raise UsageError(
                    f"{self.option}: a worker process cannot import {each!r}; put it into a file of its own"
                )
        self.tools = find_tools(tools)
        """The functions by the names that the model calls; empty: a function of the user's answers."""
        modules = tuple(sorted(getattr(found[self.name], "worker_modules", ())))
        self._has_talks = is_start(found[self.name])
        setup = Setup(names=names, memory_bytes=MEMORY_BYTES, what=what, modules=modules, holds=self._has_talks)
        self._num_single = count()
        self._dispatcher = Dispatcher(setup, workers, timeout_seconds, is_capped=True)
        self._end = weakref.finalize(self, self._dispatcher.close)
        atexit.register(self._end)  # which comes before the processes' own end

    def ask(self, task: Task, turns: Sequence[str], key: Key | None = None) -> TurnJob:
        """Begin to ask what is said after all of the model's turns so far.

        Args:
            key: (group's id, index) of the rollout; None: it is asked this once. A key has one question at a time.

        Raises:
            RewardError: a column of the task cannot be sent.
        """
        content = write_task(task)
        if self._has_talks:
            own = ("", next(self._num_single)) if key is None else key
            job: TurnJob = HearJob(self.name, content, turns, own, is_single=key is None)
        else:
            job = TurnJob(self.name, content, turns)
        self._dispatcher.add([job])
        return job

    def is_ready(self, job: TurnJob) -> bool:
        """Whether `reply` gives what `ask` began without waiting."""
        return self._dispatcher.is_done(job)

    def wait(self, jobs: Sequence[TurnJob], seconds: float) -> None:
        """Wait until one of these is ready, or so many seconds are over."""
        self._dispatcher.wait(jobs, seconds)

    def reply(self, job: TurnJob) -> Reply | Fault:
        """Wait for what `ask` began. RewardError: the workers cannot be started."""
        outcome: Reply | Fault = self._dispatcher.outcome(job)
        return outcome

    def over(self, keys: Iterable[Key]) -> None:
        """Say that these rollouts hear nothing more: their conversations are closed.

        It may be said again, and of rollouts that were never asked. What one of them is still being asked is a
        `Fault`, unless it is ready.
        """
        if self._has_talks:
            self._dispatcher.end(frozenset(keys))

    @property
    def num_open(self) -> int:
        """Conversations that are open in all workers."""
        return self._dispatcher.num_open

    def probe(self, task: Task) -> list[str]:
        """Try it on a made-up turn; give a warning where it fails.

        UsageError: it cannot start a conversation, or gives something that is no text.
        """
        if self._has_talks and isinstance(start := self.reply(self.ask(task, [])), Fault):
            raise UsageError(
                f"{self.option}: {start.reason}, when it was started for task {task.id!r}; wanted {WANTED}"
            )
        reply = self.reply(self.ask(task, ["Answer: 0."]))
        if not isinstance(reply, Fault):
            return []
        if reply.kind in {"not_a_text", "not_a_number"}:
            raise UsageError(f"{self.option}: {reply.reason}; wanted {WANTED}")
        return [reply.reason]

    def new_step(self) -> None:
        """Put the time limit, which time-outs may have lowered, back to its full length. Nothing is closed."""
        self._dispatcher.new_step()

    def close(self) -> None:
        """Close what is open, and end the worker processes.

        They also end with the environment, and with the process that made it.
        """
        self._end()
        atexit.unregister(self._end)
