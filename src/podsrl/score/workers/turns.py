"""What a worker does for an environment: it calls `reply(task, turns)`, and reads what that gives.

`TurnJob` is one rollout's turns.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from podsrl.errors import short
from podsrl.lib.channel import Malformed
from podsrl.lib.resolve import Table, resolve
from podsrl.lib.user_function import check_arguments
from podsrl.score.base import Fault, Rows, fault_of, read_value
from podsrl.score.workers.jobs import Job, read_fault, read_task, seeded
from podsrl.types import Task

WANTED = "a function reply(task, turns) -> text, or None for the end; or (text or None, reward of the turn)"
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


def find_environment(name: str) -> ReplyFunction:
    """Find what `task.environment` names. UsageError: it cannot be imported, or takes other arguments.

    Example:
        >>> find_environment("builtins:max") is max
        True
    """
    where = f"task.environment = {name!r}"
    with redirect_stdout(sys.stderr):  # what a user's module prints is no part of a command's result
        found = resolve(name, ENVIRONMENTS, option="task.environment", kind="environment", wanted=WANTED)
    check_arguments(found, 2, where=where, wanted=WANTED)
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
    reward: float | Fault | None = None
    if isinstance(value, tuple) and len(value) == 2:
        value, gain = value
        reward = None if gain is None else read_value(name, gain, what)
    if isinstance(reward, Fault):
        return reward
    if value is None:
        return Reply(reward=reward)
    said: tuple[Any, ...] = value.texts if isinstance(value, Reply) else (value,)
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
