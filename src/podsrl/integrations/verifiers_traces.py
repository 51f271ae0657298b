"""Tasks and traces of verifiers: a task from the columns that hold it, and the trace that its rewards read."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from podsrl.errors import UsageError, short
from podsrl.types import Task

if TYPE_CHECKING:
    import verifiers.v1 as vf

KIND, DATA, CONFIG = "verifiers_task", "verifiers_data", "verifiers_config"
"""Columns from which a worker process makes the task anew: its class, its data and its config."""
Messages = Sequence[Mapping[str, Any]]


def messages_of(data: vf.TaskData) -> list[dict[str, Any]]:
    """The prompt as role and content; content is no text where a message holds anything else."""
    system = [] if data.system_prompt is None else [{"role": "system", "content": data.system_prompt}]
    if isinstance(data.prompt, str):
        return [*system, {"role": "user", "content": data.prompt}]
    return [*system, *({"role": message.role, "content": content_of(message)} for message in data.prompt or [])]


def content_of(message: Any) -> str | None:
    """The text of a message; None: it holds anything else."""
    if getattr(message, "tool_calls", None):
        return None
    if isinstance(message.content, list):
        texts = [part.text for part in message.content if part.type == "text"]
        return "\n".join(texts) if len(texts) == len(message.content) else None
    content: str | None = message.content
    return content


def name_of(kind: type) -> str:
    """A class as "module:name"."""
    return f"{kind.__module__}:{kind.__qualname__}"


def named_class(column: str, kind: str, base: type) -> Any:
    """The class that a column names, if it is below `base`; a column of the data imports nothing."""
    module, _, name = kind.partition(":")
    try:
        found: Any = attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):
        found = None
    if not (isinstance(found, type) and issubclass(found, base)):
        wanted = f"wanted a class below verifiers' {base.__name__}, of a module that the task set's loader has imported"
        raise UsageError(f"{column} = {short(kind)}: {wanted}")
    return found


def original(task: Task) -> vf.Task:
    """Verifiers' task that this one stands for."""
    return rebuilt(task.columns[KIND], task.columns[DATA], task.columns[CONFIG])


@lru_cache(maxsize=1024)
def rebuilt(kind: str, data: str, config: str) -> vf.Task:
    """Verifiers' task of these columns."""
    from verifiers.v1.task import Task as AnyTask

    found = named_class(KIND, kind, AnyTask)
    made: vf.Task = found(found.data_type().model_validate_json(data), found.config_type().model_validate_json(config))
    return made


def new_trace(task: vf.Task, asked: Messages) -> vf.Trace:
    """What verifiers would have recorded of a conversation that begins with these messages."""
    import verifiers.v1 as vf
    from verifiers.v1.state import state_cls
    from verifiers.v1.trace import AgentInfo, TraceTask

    kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
    trace = vf.Trace(
        task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=state_cls(type(task))(),
        agent=AgentInfo(config=vf.AgentConfig()),
    )
    for each in asked:
        add_to(trace, kinds[each["role"]](content=each["content"]))
    return trace


def add_to(trace: vf.Trace, message: Any, *, is_sampled: bool = False) -> None:
    """Add what was said; `is_sampled`: by the policy."""
    from verifiers.v1.graph import MessageNode

    parent = len(trace.nodes) - 1 if trace.nodes else None
    trace.nodes.append(MessageNode(parent=parent, message=message, sampled=is_sampled))
