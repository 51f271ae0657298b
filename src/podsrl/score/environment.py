"""What answers the model's turns: a user's function, or tools that the model calls; in workers, within limits."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from podsrl.errors import UsageError
from podsrl.score.base import Fault
from podsrl.score.rewards import is_importable_by_workers
from podsrl.score.workers.dispatcher import MEMORY_BYTES, Dispatcher
from podsrl.score.workers.jobs import write_task
from podsrl.score.workers.tools import find_replies, find_tools
from podsrl.score.workers.turns import WANTED, Key, Reply, TurnJob
from podsrl.score.workers.worker import Setup
from podsrl.types import Task


class Environment:
    """Asks `reply(task, turns)`. Replies are made while the caller does something else, such as generating.

    Whatever the function does, one rollout alone is lost: a call that raises, takes too long, ends its process or
    returns no text is a `Fault`. The workers' limits are those of rewards; they start with the first `ask`.

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
        setup = Setup(names=names, memory_bytes=MEMORY_BYTES, what=what, modules=modules)
        self._dispatcher = Dispatcher(setup, workers, timeout_seconds, is_capped=True)
        self._end = weakref.finalize(self, self._dispatcher.close)

    def ask(self, task: Task, turns: Sequence[str], key: Key | None = None) -> TurnJob:
        """Begin to ask what is said after all of the model's turns so far.

        Args:
            key: (group's id, index) of the rollout; None: it is asked this once. A key has one question at a time.

        Raises:
            RewardError: a column of the task cannot be sent.
        """
        job = TurnJob(self.name, write_task(task), turns)
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
        """Say that these rollouts hear nothing more. It may be said again, and of rollouts that were never asked."""

    def probe(self, task: Task) -> list[str]:
        """Try it on a made-up turn; give a warning where it fails. UsageError: it gives something that is no text."""
        reply = self.reply(self.ask(task, ["Answer: 0."]))
        if not isinstance(reply, Fault):
            return []
        if reply.kind in {"not_a_text", "not_a_number"}:
            raise UsageError(f"{self.option}: {reply.reason}; wanted {WANTED}")
        return [reply.reason]

    def new_step(self) -> None:
        """Put the time limit, which time-outs may have lowered, back to its full length."""
        self._dispatcher.new_step()

    def close(self) -> None:
        """End the worker processes. They also end with the environment, and with the process that made it."""
        self._end()
