"""An environment of verifiers as one of podsrl: `task.environment` of task sets that `verifiers.load` makes.

An environment of verifiers (`Env`) is a coroutine, `run(task, agents)`, that takes turns of an agent. Here it is played
from the start for each reply, with the turns that the model has said: where it wants a turn that is not there, what it
has sent before is the reply. So it has to do the same with the same turns; Python's, NumPy's and torch's random numbers
begin with the same seed.

The reward of a turn is what the trace is worth if the conversation ends behind it, less what it was worth before it.
They add up to verifiers' own reward: exactly, since what a trace is worth is rounded to multiples of 2^-30.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from podsrl.errors import UsageError
from podsrl.integrations.verifiers_traces import add_to, messages_of, named_class, new_trace, original
from podsrl.lib.seeds import hash_bits, set_global_seed
from podsrl.types import Task

if TYPE_CHECKING:
    import verifiers.v1 as vf

REPLY = "podsrl.integrations.verifiers_turns:reply"
"""The environment of these task sets, as `task.environment` names it."""
ENV, ENV_CONFIG = "verifiers_env", "verifiers_env_config"
"""Columns from which a worker process makes the environment anew: its class and its config."""
_GRID = 2.0**30


def reply(task: Task, turns: list[str]) -> tuple[str | None, float]:
    """What the environment says after these turns, and the reward of the last one; as `task.environment` wants it."""
    environment, own = environment_of(task.columns[ENV], task.columns[ENV_CONFIG]), original(task)
    before = _worth(environment, own, turns[:-1]) if len(turns) > 1 else 0.0
    gained = _worth(environment, own, turns) - before
    waiting = play(environment, own, turns, waits=True)
    return (None if waiting is None else waiting.message), gained


reply.worker_modules = {"verifiers.v1"}  # type: ignore[attr-defined]
"""What a worker imports before it plays; `verifiers.task_set` adds the modules of its classes."""


class Waits(BaseException):
    """The environment wants a turn that is not there. No `except Exception` of an environment's own catches it."""

    def __init__(self, trace: vf.Trace, message: str | None) -> None:
        self.trace, self.message = trace, message


def play(environment: vf.Env[Any], task: vf.Task[Any], turns: Sequence[str], *, waits: bool) -> Waits | None:
    """Play an environment with these turns; `waits`: else the conversation ends behind the last one.

    Returns:
        Where it waits for a further turn; None: it has ended.

    Raises:
        UsageError: it uses its agent in another way than one conversation in texts.
    """
    try:
        _ended(environment, task, turns, waits=waits)
    except Waits as waiting:
        return waiting
    return None


def _worth(environment: vf.Env[Any], task: vf.Task[Any], turns: Sequence[str]) -> float:
    episode = _ended(environment, task, turns, waits=False)
    worth = sum(float(trace.reward) for trace in episode.traces)
    return round(worth * _GRID) / _GRID


def _ended(environment: vf.Env[Any], task: vf.Task[Any], turns: Sequence[str], *, waits: bool) -> vf.Episode[Any]:
    from verifiers.v1.configs.agent import agent_config_fields
    from verifiers.v1.episode import EnvInfo, Episode
    from verifiers.v1.trace import TraceTask

    set_global_seed(hash_bits(task.key.encode(), 4))
    about = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    episode: vf.Episode[Any] = Episode(env=EnvInfo(id=environment.config.env_id), task=about)
    [(name, seat)] = agent_config_fields(environment.config).items()
    most = len(turns) + 1 if seat.max_turns is None else seat.max_turns
    agents: Any = SimpleNamespace(**{name: _Agent(turns[:most], episode, waits=waits and len(turns) < most)})

    async def whole() -> None:
        await environment.setup(agents)
        await environment.run(task, agents)
        await environment.finalize(task, episode)

    asyncio.run(whole())
    return episode


class _Agent:
    """Stands for verifiers' agent: it says turns that are known."""

    trainable = True

    def __init__(self, turns: Sequence[str], episode: vf.Episode[Any], *, waits: bool) -> None:
        self._turns, self._waits, self._episode, self._is_used = turns, waits, episode, False

    @asynccontextmanager
    async def interaction(self, task: vf.Task[Any], **resources: Any) -> AsyncIterator[_Interaction]:
        """As verifiers' `Agent.interaction`."""
        if self._is_used:
            raise UsageError("its environment talks with its agent more than once per task, and a rollout is one talk")
        self._is_used = True
        talk = _Interaction(task, self._turns, self._waits)
        yield talk
        talk.trace.stop("user_closed")
        await task.score(talk.trace)
        self._episode.traces.append(talk.trace)

    async def run(self, task: vf.Task[Any], **resources: Any) -> vf.Trace:
        """As verifiers' `Agent.run`: one turn."""
        async with self.interaction(task, **resources) as talk:
            await talk.turn()
        return talk.trace


class _Interaction:
    def __init__(self, task: vf.Task[Any], turns: Sequence[str], waits: bool) -> None:
        self.trace = new_trace(task, messages_of(task.data))
        self._left, self._waits = list(turns), waits

    async def turn(self, message: Any = None) -> Any:
        """As verifiers' `Interaction.turn`; a message is a text."""
        import verifiers.v1 as vf
        from verifiers.v1.agent import Segment

        if message is not None and not isinstance(message, str):
            raise UsageError("its environment sends other messages than texts")
        if message is not None:
            add_to(self.trace, vf.UserMessage(content=message))
        if not self._left and self._waits:
            raise Waits(self.trace, message)
        if not self._left:
            self.trace.stop("max_turns")
            return Segment(messages=[], terminated=True)
        answer = vf.AssistantMessage(content=self._left.pop(0))
        add_to(self.trace, answer, is_sampled=True)
        return Segment(messages=[answer])


@lru_cache(maxsize=16)
def environment_of(kind: str, config: str) -> vf.Env[Any]:
    """The environment of these columns."""
    from verifiers.v1.configs.env import EnvConfig
    from verifiers.v1.env import Env
    from verifiers.v1.utils.generic import concrete_type

    found = named_class(ENV, kind, Env)
    of_config: Any = concrete_type(found, EnvConfig, origin=Env) or EnvConfig
    environment: vf.Env[Any] = found(of_config.model_validate_json(config))
    return environment
