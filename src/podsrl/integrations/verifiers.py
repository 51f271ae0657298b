"""Tasksets of verifiers as task sets: their questions, and their rewards as one reward. See docs/from-verifiers.md.

    pods train --task.name=podsrl.integrations.verifiers:load --task.path=TASKSET

A taskset of verifiers (0.4 or later) says what is asked and how an answer is scored, and leaves the way to the answer
to an agent. Here that way is one completion of the policy. A task that needs more than that is an error.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from podsrl.errors import UnavailableError, UsageError, short
from podsrl.lib.user_function import calling, reason_of
from podsrl.tasks import MOST_HELD_OUT, TaskSet
from podsrl.tasks.split import hold_out, take_eval, without_held_out
from podsrl.types import Task

if TYPE_CHECKING:
    import verifiers.v1 as vf

REWARD = "podsrl.integrations.verifiers:reward"
"""The reward of these task sets, as `task.rewards` and `task.correct` name it."""
_KIND, _DATA, _CONFIG = "verifiers_task", "verifiers_data", "verifiers_config"
"""Columns from which a worker process makes the task anew: its class, its data and its config."""


def load(*, path: str, num_eval: int, seed: int) -> TaskSet:
    """Load an installed taskset with its default config; for `task.name`.

    Args:
        path: the taskset's id, as verifiers' own commands take it.
        num_eval, seed: see `task_set`.

    Raises:
        UsageError: verifiers is not installed, there is no such taskset, it comes with an environment or a harness of
            its own, or as of `task_set`.
    """
    loaders = _loaders()
    with calling(f"verifiers' taskset task.path = '{path}'"):
        environment, harness = loaders.environment_class(path), loaders.default_harness_id(path)
        taskset = loaders.load_taskset(loaders.taskset_config_type(path)(id=path))
    if environment is not loaders.SingleAgentEnv or harness == path:
        raise _refusal(path, "it brings an environment or a harness of its own")
    return task_set(taskset, name=path, num_eval=num_eval, seed=seed)


def task_set(
    taskset: vf.Taskset,
    held_out: vf.Taskset | None = None,
    *,
    name: str = "",
    num_eval: int = MOST_HELD_OUT,
    seed: int = 0,
) -> TaskSet:
    """Turn a taskset into a task set; for a loader of your own, which gives the taskset its config.

    The reward is the weighted sum that verifiers computes. An answer counts as correct where it is at least 1: set
    `task.correct` to a function of your own where a right answer can have less. Questions are chat messages.

    Args:
        taskset: its tasks are of classes that another process can import.
        held_out: the tasks to evaluate on; None: some of the first taskset.
        name: of the set in messages; empty: the name of the taskset's class.
        num_eval: how many to evaluate on, at least 1. Where there are no more than the default, a fifth is held out,
            or all of `held_out` is taken.
        seed: of the choice of these.

    Raises:
        UsageError: a task wants more than one completion, or is not what it was after a way through JSON; or the number
            of tasks does not fit.
    """
    name = name or type(taskset).__name__
    train = _tasks(taskset, name)
    notes: tuple[str, ...] = ()
    if held_out is None:
        # Without task.num_eval a loader gets the default, which may be more than there are.
        count = None if num_eval == MOST_HELD_OUT >= len(train) else num_eval
        kept, test = hold_out(f"taskset '{name}'", train, count, seed)
    else:
        of_test = _tasks(held_out, f"{name}/eval")
        kept, of_split = without_held_out(train, of_test, "the held-out taskset")
        count = None if num_eval == MOST_HELD_OUT else num_eval
        test = take_eval(f"taskset '{name}/eval'", of_test, count, seed)
        notes += of_split
    notes += _notes(test)
    return TaskSet(
        name=name, train=kept, eval=test, rewards={REWARD: 1.0}, correct=REWARD, format=None, chat=True, notes=notes
    )


def reward(task: Task, completion: str) -> float:
    """Score a completion as verifiers does: the weighted sum of the task's rewards. A reward of podsrl's row form.

    The trace that the rewards read has the prompt's messages and the whole completion as the content of one more, also
    where a part of it is reasoning. It has no model calls, and so no token counts and no finish reason.
    """
    scored = _original(task)
    from verifiers.v1.errors import TaskError

    trace = _trace(scored, task, completion)
    try:
        asyncio.run(scored.score(trace))
    except TaskError as error:
        raise error.__cause__ or error from None  # the cause names the place in the reward's file
    return float(trace.reward)


reward.worker_modules = {"verifiers.v1"}  # type: ignore[attr-defined]
"""What a worker imports before it judges; `task_set` adds the modules of its tasks' classes."""


def _loaders() -> Any:
    try:
        from verifiers.v1.utils import loaders
    except ImportError as error:
        raise UnavailableError(
            f"tasksets of verifiers need its version 0.4 or later ({reason_of(error)}): pip install 'podsrl[verifiers]'"
        ) from error
    return loaders


def _refusal(name: str, because: str) -> UsageError:
    wanted = "wanted tasks whose answer is one completion, scored without tools, a container or another model"
    return UsageError(f"verifiers' taskset '{name}' cannot be trained here: {because}; {wanted}")


def _tasks(taskset: vf.Taskset, name: str) -> list[Task]:
    if not taskset.bounded:
        raise _refusal(name, "it yields tasks without end (bound it with `take(count)` in a loader of your own)")
    if taskset.toolsets(taskset.config):
        raise _refusal(name, "it has tools")
    with calling(f"verifiers' taskset '{name}'"):
        return [_as_task(task, name) for task in taskset]


def _as_task(task: vf.Task, name: str) -> Task:
    where = f"{name}/{task.data.idx}"
    if because := _obstacle(task):
        raise _refusal(where, because)
    messages = tuple(_messages(task.data))
    is_text = len(messages) == 1 and messages[0]["role"] == "user"
    columns = {
        _KIND: f"{type(task).__module__}:{type(task).__qualname__}",
        _DATA: task.data.model_dump_json(),
        _CONFIG: task.config.model_dump_json(),
    }
    reward.worker_modules.add(type(task).__module__)  # type: ignore[attr-defined]
    rebuilt = _rebuilt(columns[_KIND], columns[_DATA], columns[_CONFIG])
    if type(rebuilt) is not type(task) or rebuilt.data != task.data or rebuilt.config != task.config:
        raise _refusal(where, "its class, data or config is not the same after a way through JSON to another process")
    return Task(
        id=where,
        prompt=messages[0]["content"] if is_text else messages,
        answer=str(getattr(task.data, "answer", "")),
        columns=columns,
    )


def _notes(tasks: Sequence[Task]) -> tuple[str, ...]:
    """A warning where no answer could count as correct, in the usual case of rewards of at most 1."""
    weights = [getattr(reward, "_vf_weight", 1.0) for task in tasks[:1] for reward in _original(task).hooks("reward")]
    most = sum(max(weight, 0.0) for weight in weights)
    if most >= 1 or not weights:
        return ()
    return (
        f"the weights of the rewards add up to {most:g}, and an answer counts as correct where its reward is at least "
        "1: set task.correct to a function of your own, unless a reward can be more than 1",
    )


def _obstacle(task: vf.Task) -> str | None:
    """What a task wants beyond one completion; None: nothing."""
    from verifiers.v1.task import Task as AnyTask
    from verifiers.v1.utils.decorators import discover_decorated

    kind, data, rewards = type(task), task.data, task.hooks("reward")
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        return f"a worker process cannot import its class {kind.__qualname__}; put it into a file of its own"
    if kind.NEEDS_CONTAINER or data.image or data.skills or data.artifacts:
        return "it wants a container or files"
    if kind.toolsets(task.config):
        return "it has tools"
    if task.config.judges:
        return "a judge scores it"
    if overridden := [hook for hook in ("setup", "finalize") if getattr(kind, hook) is not getattr(AnyTask, hook)]:
        return f"it has the hook '{overridden[0]}', which works on a runtime"
    if task.hooks("stop") or discover_decorated(task, "intercept"):
        return "it stops or changes single turns"
    if not rewards:
        return "it has no reward"
    for function in rewards:
        runtime = inspect.signature(function).parameters.get("runtime")
        if runtime is not None and runtime.default is runtime.empty:
            return f"its reward '{function.__name__}' reads a runtime"
    if data.prompt is None:
        return "a simulated user opens the conversation"
    if not all(isinstance(message["content"], str) and message["role"] != "tool" for message in _messages(data)):
        return "its prompt holds images or uses of tools"
    return None


def _messages(data: vf.TaskData) -> list[dict[str, Any]]:
    """The prompt as role and content; content is no text where a message holds anything else."""
    system = [] if data.system_prompt is None else [{"role": "system", "content": data.system_prompt}]
    if isinstance(data.prompt, str):
        return [*system, {"role": "user", "content": data.prompt}]
    return [*system, *({"role": message.role, "content": _content(message)} for message in data.prompt or [])]


def _content(message: Any) -> str | None:
    if getattr(message, "tool_calls", None):
        return None
    if isinstance(message.content, list):
        texts = [part.text for part in message.content if part.type == "text"]
        return "\n".join(texts) if len(texts) == len(message.content) else None
    content: str | None = message.content
    return content


def _original(task: Task) -> vf.Task:
    return _rebuilt(task.columns[_KIND], task.columns[_DATA], task.columns[_CONFIG])


@lru_cache(maxsize=1024)
def _rebuilt(kind: str, data: str, config: str) -> vf.Task:
    """The task, if it is one of verifiers'; a column of the data imports nothing."""
    from verifiers.v1.task import Task as AnyTask

    module, _, name = kind.partition(":")
    try:
        found: Any = attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):
        found = None
    if not (isinstance(found, type) and issubclass(found, AnyTask)):
        wanted = "wanted a class below verifiers' Task, of a module that the task set's loader has imported"
        raise UsageError(f"{_KIND} = {short(kind)}: {wanted}")
    return found(found.data_type().model_validate_json(data), found.config_type().model_validate_json(config))


def _trace(scored: vf.Task, task: Task, completion: str) -> Any:
    """What verifiers would have recorded: the messages that the policy got, and its answer."""
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.state import state_cls
    from verifiers.v1.trace import AgentInfo, TraceTask

    kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
    asked: tuple[Mapping[str, str], ...] = (
        ({"role": "user", "content": task.prompt},) if isinstance(task.prompt, str) else task.prompt
    )
    trace = vf.Trace(
        task=TraceTask(type=type(scored).__name__, data=scored.data, key=scored.key, hash=scored.hash),
        state=state_cls(type(scored))(),
        agent=AgentInfo(config=vf.AgentConfig()),
    )
    messages = [
        *(kinds[each["role"]](content=each["content"]) for each in asked),
        vf.AssistantMessage(content=completion),
    ]
    for place, message in enumerate(messages):
        parent = place - 1 if place else None
        trace.nodes.append(MessageNode(parent=parent, message=message, sampled=place == len(asked)))
    trace.stop("agent_completed")
    return trace
