"""Tasksets of verifiers as task sets: their questions, their rewards, their turns. See docs/from-verifiers.md.

    pods train --task.name=podsrl.integrations.verifiers:load --task.path=TASKSET

A taskset of verifiers (0.4 or later) says what is asked and how an answer is scored, and leaves the way to the answer
to an agent. Here that way is one completion of the policy, or one conversation with an environment of its own. A task
that needs more than that is an error.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from podsrl.errors import UnavailableError, UsageError
from podsrl.integrations.verifiers_traces import (
    CONFIG,
    DATA,
    KIND,
    Messages,
    add_to,
    content_of,
    messages_of,
    name_of,
    new_trace,
    original,
    rebuilt,
)
from podsrl.integrations.verifiers_turns import ENV, ENV_CONFIG, REPLY, play, reply
from podsrl.lib.user_function import calling, reason_of
from podsrl.score import EARNED
from podsrl.tasks import MOST_HELD_OUT, TaskSet
from podsrl.tasks.split import hold_out, take_eval, without_held_out
from podsrl.types import Task

if TYPE_CHECKING:
    import verifiers.v1 as vf

REWARD = "podsrl.integrations.verifiers:reward"
"""The reward of these task sets, as `task.rewards` and `task.correct` name it."""


def load(*, path: str, num_eval: int, seed: int) -> TaskSet:
    """Load an installed taskset with its default config; for `task.name`.

    Args:
        path: the taskset's id, as verifiers' own commands take it.
        num_eval, seed: see `task_set`.

    Raises:
        UsageError: verifiers is not installed, there is no such taskset, it comes with a harness of its own, or as of
            `task_set`.
    """
    loaders = _loaders()
    with calling(f"verifiers' taskset task.path = '{path}'"):
        kind, harness = loaders.environment_class(path), loaders.default_harness_id(path)
        config = loaders.taskset_config_type(path)(id=path)
        taskset, environment = loaders.load_taskset(config), None
        if kind is not loaders.SingleAgentEnv:
            environment = loaders.load_environment(loaders.env_config_type(path)(taskset=config))
    if harness == path:
        raise _refusal(path, "it brings a harness of its own")
    return task_set(taskset, environment=environment, name=path, num_eval=num_eval, seed=seed)


def task_set(
    taskset: vf.Taskset,
    held_out: vf.Taskset | None = None,
    *,
    environment: vf.Env[Any] | None = None,
    name: str = "",
    num_eval: int = MOST_HELD_OUT,
    seed: int = 0,
) -> TaskSet:
    """Turn a taskset into a task set; for a loader of your own, which gives the taskset its config.

    The reward is the weighted sum that verifiers computes; with an environment, what it gives for the turns adds up to
    it (`podsrl.integrations.verifiers_turns`). An answer counts as correct where it is at least 1: set `task.correct`
    to a function of your own where a right answer can have less. Questions are chat messages.

    Args:
        taskset: its tasks are of classes that another process can import.
        held_out: the tasks to evaluate on; None: some of the first taskset.
        environment: what answers the model's turns; None: an answer is one completion.
        name: of the set in messages; empty: the name of the taskset's class.
        num_eval: how many to evaluate on, at least 1. Where there are no more than the default, a fifth is held out,
            or all of `held_out` is taken.
        seed: of the choice of these.

    Raises:
        UsageError: a task wants more than one completion, or an environment more than one conversation in texts; one of
            them is not what it was after a way through JSON; or the number of tasks does not fit.
    """
    name = name or type(taskset).__name__
    if environment is not None and (because := _refused(environment)):
        raise _refusal(name, because)
    train = _tasks(taskset, name, environment)
    notes: tuple[str, ...] = ()
    if held_out is None:
        # Without task.num_eval a loader gets the default, which may be more than there are.
        count = None if num_eval == MOST_HELD_OUT >= len(train) else num_eval
        kept, test = hold_out(f"taskset '{name}'", train, count, seed)
    else:
        of_test = _tasks(held_out, f"{name}/eval", environment)
        kept, of_split = without_held_out(train, of_test, "the held-out taskset")
        count = None if num_eval == MOST_HELD_OUT else num_eval
        test = take_eval(f"taskset '{name}/eval'", of_test, count, seed)
        notes += of_split
    judge = REWARD if environment is None else EARNED
    return TaskSet(
        name=name,
        train=kept,
        eval=test,
        rewards={judge: 1.0},
        correct=judge,
        format=None,
        chat=True,
        environment=None if environment is None else REPLY,
        notes=notes + (_notes(test) if environment is None else ()),
    )


def reward(task: Task, completion: str) -> float:
    """Score a completion as verifiers does: the weighted sum of the task's rewards. A reward of podsrl's row form.

    The trace that the rewards read has the prompt's messages and the whole completion as the content of one more, also
    where a part of it is reasoning. It has no model calls, and so no token counts and no finish reason.
    """
    scored = original(task)
    import verifiers.v1 as vf
    from verifiers.v1.errors import TaskError

    asked: Messages = ({"role": "user", "content": task.prompt},) if isinstance(task.prompt, str) else task.prompt
    trace = new_trace(scored, asked)
    add_to(trace, vf.AssistantMessage(content=completion), is_sampled=True)
    trace.stop("agent_completed")
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
    wanted = (
        "wanted tasks whose answer is one completion, or the turns of one conversation, scored without tools, a "
        "container or another model"
    )
    return UsageError(f"verifiers' taskset '{name}' cannot be trained here: {because}; {wanted}")


def _tasks(taskset: vf.Taskset, name: str, environment: vf.Env[Any] | None) -> list[Task]:
    if not taskset.bounded:
        raise _refusal(name, "it yields tasks without end (bound it with `take(count)` in a loader of your own)")
    if taskset.toolsets(taskset.config):
        raise _refusal(name, "it has tools")
    with calling(f"verifiers' taskset '{name}'"):
        return [_as_task(task, name, environment) for task in taskset]


def _as_task(task: vf.Task, name: str, environment: vf.Env[Any] | None) -> Task:
    where = f"{name}/{task.data.idx}"
    if because := _obstacle(task, environment):
        raise _refusal(where, because)
    messages = tuple(messages_of(task.data)) if environment is None else _opening(environment, task, where)
    is_text = len(messages) == 1 and messages[0]["role"] == "user"
    columns = {
        KIND: name_of(type(task)),
        DATA: task.data.model_dump_json(),
        CONFIG: task.config.model_dump_json(),
    }
    reward.worker_modules.add(type(task).__module__)  # type: ignore[attr-defined]
    if environment is not None:
        columns |= {ENV: name_of(type(environment)), ENV_CONFIG: environment.config.model_dump_json()}
        reply.worker_modules |= {type(task).__module__, type(environment).__module__}  # type: ignore[attr-defined]
    found = rebuilt(columns[KIND], columns[DATA], columns[CONFIG])
    if type(found) is not type(task) or found.data != task.data or found.config != task.config:
        raise _refusal(where, "its class, data or config is not the same after a way through JSON to another process")
    return Task(
        id=where,
        prompt=messages[0]["content"] if is_text else messages,
        answer=str(getattr(task.data, "answer", "")),
        columns=columns,
    )


def _notes(tasks: Sequence[Task]) -> tuple[str, ...]:
    """A warning where no answer could count as correct, in the usual case of rewards of at most 1."""
    weights = [getattr(reward, "_vf_weight", 1.0) for task in tasks[:1] for reward in original(task).hooks("reward")]
    most = sum(max(weight, 0.0) for weight in weights)
    if most >= 1 or not weights:
        return ()
    return (
        f"the weights of the rewards add up to {most:g}, and an answer counts as correct where its reward is at least "
        "1: set task.correct to a function of your own, unless a reward can be more than 1",
    )


def _refused(environment: vf.Env[Any]) -> str | None:
    """Why an environment cannot be played here; None: it can."""
    from verifiers.v1.configs.agent import agent_config_fields
    from verifiers.v1.env import Env

    kind = type(environment)
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        return f"a worker process cannot import its environment {kind.__qualname__}; put it into a file of its own"
    if len(agents := agent_config_fields(environment.config)) != 1:
        return f"its environment has several agents: {', '.join(agents)}"
    if overridden := [hook for hook in ("start", "stop") if getattr(kind, hook) is not getattr(Env, hook)]:
        return f"its environment has the hook '{overridden[0]}', which keeps something running"
    return None


def _opening(environment: vf.Env[Any], task: vf.Task, where: str) -> tuple[dict[str, Any], ...]:
    """What the model reads before its first turn."""
    try:
        waiting = play(environment, task, (), waits=True)
    except UsageError as error:
        raise _refusal(where, str(error)) from None
    if waiting is None:
        raise _refusal(where, "its environment asks its agent nothing")
    return tuple({"role": message.role, "content": content_of(message)} for message in waiting.trace.messages)


def _obstacle(task: vf.Task, environment: vf.Env[Any] | None) -> str | None:
    """What a task wants beyond one completion, or the turns of one conversation; None: nothing."""
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
    if not rewards and environment is None:
        return "it has no reward"
    for function in rewards:
        runtime = inspect.signature(function).parameters.get("runtime")
        if runtime is not None and runtime.default is runtime.empty:
            return f"its reward '{function.__name__}' reads a runtime"
    if data.prompt is None and environment is None:
        return "a simulated user opens the conversation"
    if not all(isinstance(message["content"], str) and message["role"] != "tool" for message in messages_of(data)):
        return "its prompt holds images or uses of tools"
    return None
