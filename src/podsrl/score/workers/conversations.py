"""What a worker does for conversations: it holds those that are open, and lets each hear its turns.

All run in one event loop: a call that waits (`async def`) lets the others go on. The worker sends `[number]` when a
call of a job begins, and ends the wait for one that takes too long; it answers jobs in the order in which they end.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from inspect import isawaitable
from typing import Any

from podsrl.errors import short
from podsrl.lib.channel import Channel
from podsrl.score.base import Fault, Rows, fault_of
from podsrl.score.workers.jobs import read_task, seed
from podsrl.score.workers.turns import Key, Reply, Start, read_reply
from podsrl.types import Task


@dataclass(slots=True)
class Talk:
    """An open conversation."""

    conversation: Any
    content: bytes
    """Its task, as it came."""
    task: Task
    heard: list[str]


class _Late(Exception):
    """A call took too long."""


@dataclass(frozen=True, slots=True)
class _Call:
    """How the calls of one job are made."""

    name: str
    begin: Callable[[], None]
    """Says that a call begins."""
    seconds: float
    """Limit of a call that waits."""
    keep: Callable[[asyncio.Future[Any]], None]
    """Gets it, so that it may be cancelled."""

    async def __call__(self, function: Callable[..., Any], task: Task, heard: Sequence[str], *given: Any) -> Any:
        """What the function gives, or a Fault. _Late: it did not end; it is cancelled.

        Global generators are seeded by the task and what it has heard when the call begins.
        """
        self.begin()
        rows = Rows(tasks=[task], texts=["\0".join(heard)], token_ids=[()])
        try:
            seed(self.name, rows)
            value = function(*given)
        except BaseException as error:  # SystemExit too
            return fault_of(self.name, error, "environment")
        if not isawaitable(value):
            return value
        waiting = asyncio.ensure_future(self._awaited(value, rows))
        self.keep(waiting)
        if not (await asyncio.wait({waiting}, timeout=self.seconds))[0]:
            waiting.cancel()
            raise _Late
        return waiting.result()

    async def _awaited(self, value: Awaitable[Any], rows: Rows) -> Any:
        seed(self.name, rows)  # others have run since the call
        try:
            return await value
        except BaseException as error:
            return fault_of(self.name, error, "environment")


class Talks:
    """The open conversations of a worker; `send` gives the main process a message."""

    def __init__(self, name: str, start: Start, send: Callable[[Any], None]) -> None:
        self._name, self._start, self._send = name, start, send
        self._talks: dict[Key, Talk] = {}
        self._last: dict[Key, asyncio.Future[None]] = {}
        """The job of a conversation that ends last: the next waits for it."""
        self._waiting: dict[Key, asyncio.Future[Any]] = {}
        """A call that waits."""
        self._folder = os.getcwd()
        self._has_said = False
        """Whether it has printed why one could not be closed."""

    def take(self, number: int, seconds: float, key: Key, content: bytes | None, turns: list[str]) -> None:
        """Begin a job: what is said after these turns of the task; without a task the conversation is closed."""
        if content is None and (waiting := self._waiting.get(key)) is not None:
            waiting.cancel()
        call = _Call(self._name, partial(self._send, [number]), seconds, partial(self._waits, key))
        job = asyncio.ensure_future(self._answer(self._last.get(key), call, number, key, content, turns))
        self._last[key] = job
        job.add_done_callback(partial(_remove, self._last, key))

    def _waits(self, key: Key, waiting: asyncio.Future[Any]) -> None:
        self._waiting[key] = waiting
        waiting.add_done_callback(partial(_remove, self._waiting, key))

    async def _answer(
        self,
        before: asyncio.Future[None] | None,
        call: _Call,
        number: int,
        key: Key,
        content: bytes | None,
        turns: list[str],
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        start = time.perf_counter()
        try:
            if content is None:
                await self._close(call, key)
            reply = Reply() if content is None else await self._hear(call, key, content, turns)
            body: Any = [reply.kind, reply.reason] if isinstance(reply, Fault) else asdict(reply)
        except _Late:
            body = {"late": call.seconds}
        except BaseException as error:  # a user's object may raise wherever it is looked at
            fault = fault_of(self._name, error, "environment")
            body = [fault.kind, fault.reason]
        self._send([number, time.perf_counter() - start, body])
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(self._folder)

    async def _hear(self, call: _Call, key: Key, content: bytes, turns: list[str]) -> Reply | Fault:
        """One that has heard all but the last turn hears that; otherwise a new one hears all."""
        talk = self._talks.get(key)
        if talk is None or talk.content != content or talk.heard != turns[:-1]:
            await self._close(call, key)
            task = read_task(content)
            conversation = await call(self._start, task, (), task)
            if isinstance(conversation, Fault):
                return conversation
            talk = self._talks[key] = Talk(conversation, content, task, [])
            if not callable(getattr(conversation, "hear", None)):
                reason = f"environment '{self._name}' started {short(conversation, 60)}, which has no method hear"
                return Fault(kind="not_a_text", reason=reason)
        said: Any = None
        for turn in turns[len(talk.heard) :]:
            talk.heard.append(turn)
            said = await call(talk.conversation.hear, talk.task, talk.heard, turn)
            if isinstance(said, Fault):
                return said
        return read_reply(self._name, said)

    async def _close(self, call: _Call, key: Key) -> None:
        talk = self._talks.pop(key, None)
        close = getattr(talk.conversation, "close", None) if talk is not None else None
        if talk is None or not callable(close):
            return
        fault = await call(close, talk.task, talk.heard)
        if isinstance(fault, Fault) and not self._has_said:
            self._has_said = True
            print(f"{fault.reason} (when it was closed)", file=sys.stderr)


def _remove(futures: dict[Key, asyncio.Future[Any]], key: Key, done: asyncio.Future[Any]) -> None:
    if futures.get(key) is done:
        del futures[key]


async def serve_talks(channel: Channel, talks: Talks) -> None:
    """Do jobs until the channel is closed."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def read() -> None:
        try:
            for frame in channel.read():
                first, seconds = frame.head
                for number, content in enumerate(pickle.loads(frame.body), first):
                    talks.take(number, seconds, *content)
        except (EOFError, ConnectionError):
            loop.remove_reader(channel.fileno())
            ended.set_result(None)

    loop.add_reader(channel.fileno(), read)
    with suppress(asyncio.CancelledError):
        await ended
