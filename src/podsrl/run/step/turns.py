"""Rollouts of several turns: an environment or a tool answers what the model said, and the rollout goes on behind that.

What it says depends on the task and the model's turns alone, and a token's random number on its position.
So neither the order of the replies, nor the processes that share a run, nor a stop in between changes a rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from podsrl.generate import Sampling
from podsrl.lib.watch import Key
from podsrl.policy import replies_ids
from podsrl.score import Environment, Reply
from podsrl.score.base import Fault
from podsrl.types import Group, Rollout, Task

_CHARACTERS = 32
"""Of a reply, for each token that there is room for: where so many make more than twice the tokens, it has no room."""


class Talk(Protocol):
    """What is said to rollouts whose turn has ended."""

    @property
    def num_waiting(self) -> int:
        """Rollouts that were taken and that `answers` has not given yet."""
        ...

    def know(self, group: Group) -> None:
        """Rollouts of this group will come."""
        ...

    def takes(self, done: Rollout) -> bool:
        """Whether the rollout may go on: then `answers` gives it back, as soon as it is known how."""
        ...

    def answers(self, *, is_idle: bool) -> Iterable[Rollout]:
        """Those of which it is known now: open, with what they read next, or ended.

        Args:
            is_idle: nothing is being generated, so no further rollout comes before these go on.
        """
        ...

    def wait(self, seconds: float) -> None:
        """Until one of them is known, at most so long."""
        ...

    def over(self, done: Rollout) -> None:
        """The rollout has ended."""
        ...

    def new_step(self) -> None:
        """Time limits are back at their full length."""
        ...


class Silence:
    """Nothing is said: a rollout has one turn."""

    num_waiting = 0

    def know(self, group: Group) -> None:
        """It is like any other."""

    def takes(self, done: Rollout) -> bool:
        return False

    def answers(self, *, is_idle: bool) -> Iterable[Rollout]:
        return ()

    def wait(self, seconds: float) -> None:
        """There is nothing to wait for."""

    def over(self, done: Rollout) -> None:
        """Nobody has to know."""

    def new_step(self) -> None:
        """There is no limit."""


Talks = Callable[[Sampling], Talk]
"""The talk with rollouts that are drawn so."""


def no_talks(sampling: Sampling) -> Talk:
    """Nothing is said to any."""
    return Silence()


@dataclass(frozen=True, slots=True)
class EnvironmentTalks:
    """An environment talks with rollouts of at most `max_turns` turns."""

    environment: Environment
    tokenizer: Any
    max_turns: int
    is_judge: bool = False
    """Whether its rewards count (the reward "environment"): then it hears the last turn too, without answering it."""

    def __call__(self, sampling: Sampling) -> Talk:
        self.environment.new_step()
        return EnvironmentTalk(self, sampling.max_new_tokens)


class EnvironmentTalk:
    """The talk with rollouts of at most `max_tokens` tokens each, with those that they read."""

    def __init__(self, talks: EnvironmentTalks, max_tokens: int) -> None:
        self._talks, self._max_tokens = talks, max_tokens
        self._task_of: dict[str, Task] = {}
        self._asked: dict[Key, tuple[Rollout, Any]] = {}

    @property
    def num_waiting(self) -> int:
        return len(self._asked)

    def know(self, group: Group) -> None:
        self._task_of[group.id] = group.task

    def takes(self, done: Rollout) -> bool:
        """As `Talk.takes`; the environment begins to think."""
        turns, key = done.turns, (done.group_id, done.index)
        if done.finish_reason != "stop" or (self._is_over(done) and not self._talks.is_judge):
            return False
        bounds = [(turn.start if place else 0, turn.end) for place, turn in enumerate(turns)]
        tokens = [done.token_ids[start:end] for start, end in bounds]  # with what it began with
        texts = self._talks.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        self._asked[key] = done, self._talks.environment.ask(self._task_of[done.group_id], texts, key=key)
        return True

    def answers(self, *, is_idle: bool) -> Iterator[Rollout]:
        environment = self._talks.environment
        ready = [key for key, (_, job) in self._asked.items() if environment.is_ready(job)]
        asked = [self._asked.pop(key) for key in ready]
        heard = [(_having(done, reply := environment.reply(job)), reply) for done, job in asked]
        said = [
            (done, reply)
            for done, reply in heard
            if isinstance(reply, Reply) and reply.texts and not self._is_over(done)
        ]
        read = [(done, reply) for done, reply in said if not self._has_no_room(done, reply)]
        going = {
            (done.group_id, done.index): self._going_on(done, ids)
            for (done, _), ids in zip(read, self._ids(read), strict=True)
        }
        ended = {(done.group_id, done.index): replace(done, finish_reason="length") for done, _ in said}
        for done, _ in heard:
            yield (ended | going).get((done.group_id, done.index), done)

    def wait(self, seconds: float) -> None:
        self._talks.environment.wait([job for _, job in self._asked.values()], seconds)

    def over(self, done: Rollout) -> None:
        self._talks.environment.over([(done.group_id, done.index)])

    def new_step(self) -> None:
        self._talks.environment.new_step()

    def _has_no_room(self, done: Rollout, reply: Reply) -> bool:
        """Told from a reply's beginning, so that a million characters are not encoded for each rollout."""
        room, text = self._max_tokens - len(done.token_ids), "".join(reply.texts)
        begin = text[: _CHARACTERS * room]
        if len(begin) == len(text):
            return False
        return len(self._talks.tokenizer(begin, add_special_tokens=False, verbose=False)["input_ids"]) >= 2 * room

    def _is_over(self, done: Rollout) -> bool:
        """Whether a rollout has all its turns."""
        return len(done.turns) >= self._talks.max_turns

    def _ids(self, said: Sequence[tuple[Rollout, Reply]]) -> list[tuple[int, ...]]:
        """The tokens of what is said, without the end of the model's turn where it has written that itself."""
        is_chat = [not isinstance(self._task_of[done.group_id].prompt, str) for done, _ in said]
        found = replies_ids(self._talks.tokenizer, [reply.messages for _, reply in said], is_chat)
        return [
            ids[1:] if of_chat and done.token_ids[-1:] == ids[:1] else ids
            for ids, of_chat, (done, _) in zip(found, is_chat, said, strict=True)
        ]

    def _going_on(self, done: Rollout, ids: tuple[int, ...]) -> Rollout:
        """The rollout that has read these tokens; it has ended where no room is left to draw one behind them."""
        start, end = len(done.token_ids), len(done.token_ids) + len(ids)
        if end >= self._max_tokens:
            return replace(done, finish_reason="length")
        return replace(
            done,
            token_ids=done.token_ids + ids,
            logprobs=done.logprobs + (0.0,) * len(ids),
            versions=done.versions and done.versions + done.versions[-1:] * len(ids),
            given=(*done.given, (start, end)) if ids else done.given,
            status="open",
            finish_reason=None,
        )


def _having(done: Rollout, reply: Reply | Fault) -> Rollout:
    """The rollout with what came of its last turn."""
    if isinstance(reply, Fault):
        return replace(done, status="failed", finish_reason=None, invalid_reason=reply.reason)
    if not reply.calls and reply.reward is None:
        return done
    heard = [*done.heard, *(((), 0.0),) * (len(done.turns) - len(done.heard))]
    calls, reward = heard[-1]  # an empty reply goes on with the same turn
    return replace(done, heard=(*heard[:-1], (calls + reply.calls, reward + (reply.reward or 0.0))))
