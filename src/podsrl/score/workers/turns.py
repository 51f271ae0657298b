"""What an environment is, of either form, and how what it says is read; what a worker does for `reply(task, turns)`.

`TurnJob` is one rollout's turns; `HearJob` and `CloseJob` are for a worker that holds conversations.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from inspect import isfunction
from typing import Any, Protocol

from podsrl.errors import UsageError, short
from podsrl.lib.channel import Malformed
from podsrl.lib.resolve import Table, resolve
from podsrl.lib.user_function import check_arguments, why_not
from podsrl.score.base import Fault, Rows, fault_of, read_value
from podsrl.score.workers.jobs import Job, read_fault, read_task, seeded
from podsrl.types import Task

WANTED = (
    "a function reply(task, turns) -> text, or None for the end, or (text or None, reward of the turn); or a class or "
    "function start(task) -> an object whose hear(text) gives these"
)
Key = tuple[str, int]
"""Of a rollout: its group's id, and its index."""
MAX_CHARACTERS = 1 << 20
"""A longer reply is a fault: no window holds so many tokens."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What is said to the model; nothing: the rollout ends."""

    texts: tuple[str, ...] = ()
    """A message each."""
    calls: tuple[bool, ...] = ()
    """Whether each is the result of a tool call, and no error; empty where an environment says it."""
    reward: float | None = None
    """Of the turn that it answers; None: the environment gives none."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The texts as messages of a chat."""
        return [{"role": "tool" if self.calls else "user", "content": text} for text in self.texts]


ReplyFunction = Callable[[Task, list[str]], Reply | str | tuple[str | None, float] | None]
"""`reply(task, turns)`: what is said to the model after its turns so far, or None for the end; or this and a reward."""


class Conversation(Protocol):
    """What an environment says to one rollout. Both methods may be `async def`, and `close` may be missing.

    What it says depends on the task and the turns alone: it may be lost, and another one then hears the turns again.
    """

    def hear(self, text: str, /) -> Any:
        """Answer the model's turn as a `ReplyFunction` does; after the end nothing more is heard."""
        ...


Start = Callable[[Task], Any]
"""`start(task)`: a `Conversation`, or what gives one when it is awaited."""
ENVIRONMENTS: Table[ReplyFunction] = Table({"columns": "podsrl.tasks.columns:reply"})
"""Name of an environment, as in `task.environment` -> the function."""


class TurnJob(Job):
    """The turns of one rollout, with its task as `write_task` gave it."""

    max_answer_bytes = 8 * MAX_CHARACTERS

    def __init__(self, name: str, task: bytes, turns: Sequence[str]) -> None:
        super().__init__(name, task, [*turns])

    def read(self, body: Any) -> Reply | Fault:
        match body:
            case {"texts": [*texts], "calls": [*calls], "reward": float() | None as reward} if (
                {*map(type, texts)} <= {str} and {*map(type, calls)} <= {bool} and math.isfinite(reward or 0.0)
            ):
                return Reply(tuple(texts), tuple(calls), reward)
            case [kind, str(reason)]:
                return read_fault(kind, reason)
        raise Malformed("no reply and no fault")

    def failed(self, fault: Fault) -> Fault:
        return fault


class HearJob(TurnJob):
    """The same for the conversation of a rollout, which ends with it where that `is_single`."""

    def __init__(self, name: str, task: bytes, turns: Sequence[str], key: Key, is_single: bool) -> None:
        super().__init__(name, task, turns)
        self.content, self.key, self._is_single = (key, task, [*turns]), key, is_single

    @property
    def is_last(self) -> bool:
        ends = self._is_single or isinstance(self.outcome, Fault) or not self.outcome.texts
        return ends and not self.is_over  # that has been closed, and the key may have another


class CloseJob(TurnJob):
    """The end of a conversation."""

    def __init__(self, name: str, key: Key) -> None:
        super().__init__(name, b"", ())
        self.content, self.is_over = (key, None, []), True


def is_start(found: ReplyFunction | Start) -> bool:
    """Whether an environment starts conversations: a class, or a function of one argument."""
    return isinstance(found, type) or bool(not why_not(found, 1) and why_not(found, 2))


def find_environment(name: str) -> ReplyFunction | Start:
    """Find what `task.environment` names. UsageError: it cannot be imported, or is of neither form.

    Example:
        >>> find_environment("builtins:max") is max
        True
    """
    where = f"task.environment = {name!r}"
    with redirect_stdout(sys.stderr):  # what a user's module prints is no part of a command's result
        found: ReplyFunction | Start = resolve(
            name, ENVIRONMENTS, option="task.environment", kind="environment", wanted=WANTED, may_wait=True
        )
    if not is_start(found):
        check_arguments(found, 2, where=where, wanted=WANTED)
    elif isinstance(found, type):
        check_arguments(found, 1, where=where, wanted=WANTED)
        hear = getattr(found, "hear", None)
        if not callable(hear):
            raise UsageError(f"{where} is a class without a method hear; wanted {WANTED}")
        if isfunction(hear) and (why := why_not(hear, 2)):
            raise UsageError(f"{where}: its method hear takes {why}; wanted {WANTED}")
    return found


def answer_turns(functions: Mapping[str, ReplyFunction], name: str, content: bytes, turns: list[str]) -> Any:
    """In a worker: answer the turns of a job, with its content as arguments."""
    task = read_task(content)
    rows = Rows(tasks=[task], texts=["\0".join(turns)], token_ids=[()])
    reply = seeded(partial(_reply, name, functions[name], task, turns), name, rows)
    return [reply.kind, reply.reason] if isinstance(reply, Fault) else asdict(reply)


def _reply(name: str, function: ReplyFunction, task: Task, turns: Sequence[str]) -> Reply | Fault:
    what = getattr(function, "what", "environment")
    try:
        return read_reply(name, function(task, [*turns]), what)
    except BaseException as error:  # SystemExit too
        return fault_of(name, error, what)


def read_reply(name: str, value: object, what: str = "environment") -> Reply | Fault:
    """Turn what an environment, or tools, returned into a reply, or a fault.

    Example:
        >>> read_reply("mine", ("higher", 0.5)), read_reply("mine", b"higher").reason
        (Reply(texts=('higher',), calls=(), reward=0.5), "environment 'mine' returned b'higher', not a text")
    """
    gain: Any = value.reward if isinstance(value, Reply) else None
    if isinstance(value, tuple) and len(value) == 2:
        value, gain = value
    reward = None if gain is None else read_value(name, gain, what)
    if isinstance(reward, Fault):
        return reward
    if value is None:
        return Reply(reward=reward)
    said: tuple[Any, ...] = (value,)
    if isinstance(value, Reply) and isinstance(value.texts, tuple):
        said = value.texts
    for text in said:
        if not isinstance(text, str):
            return Fault(kind="not_a_text", reason=f"{what} '{name}' returned {short(text, 60)}, not a text")
    if (length := sum(map(len, said))) > MAX_CHARACTERS:
        reason = f"{what} '{name}' returned {length:,} characters, more than {MAX_CHARACTERS:,}"
        return Fault(kind="not_a_text", reason=reason)
    try:
        texts = tuple(text.encode().decode() for text in said)  # plain `str`, not a user's subclass
    except UnicodeEncodeError:
        return Fault(kind="not_a_text", reason=f"{what} '{name}' returned half of a surrogate pair, not a text")
    return Reply(texts, value.calls if isinstance(value, Reply) else (), reward)
