"""The environment, or the tools, that a config or its task set names, tried on one question."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

from podsrl.config.schema import RunConfig, TaskConfig
from podsrl.errors import UsageError
from podsrl.policy import replies_ids, with_tools
from podsrl.score import EARNED, Environment
from podsrl.tasks import TaskSet
from podsrl.types import Task


def find_environment(config: RunConfig, tasks: TaskSet, first: Task) -> tuple[Environment | None, tuple[str, ...]]:
    """What answers the model's turns, and what a person should know of it.

    Args:
        first: the question that it is tried on.

    Raises:
        UsageError: there is no such environment or tool, or it gives what is no text; there are tools and an
            environment, or tools and plain text.
    """
    task = config.task
    name = tasks.environment if task.environment is None else task.environment
    if name is None and not task.tools:
        is_set = task.max_turns != TaskConfig().max_turns
        return None, ("task.max_turns changes nothing here: there is no task.environment, and no task.tools",) * is_set
    if name is not None and task.tools:
        raise UsageError(
            f"task.tools = {[*task.tools]} and task.environment = {name!r} both answer the model's turns: leave one of "
            "them out"
        )
    if task.tools and isinstance(first.prompt, str):
        raise UsageError(
            f"task.tools = {[*task.tools]}: the chat template shows tools to the model, and the questions are plain "
            "text: set task.chat = true"
        )
    with ExitStack() as on_error:
        environment = Environment(
            name or "", tools=task.tools, workers=task.reward_workers, timeout_seconds=task.reward_timeout_seconds
        )
        on_error.callback(environment.close)
        warnings = tuple(environment.probe(first))
        on_error.pop_all()
    return environment, warnings


def check_earned(environment: Environment | None, names: Collection[str | None]) -> None:
    """Check that a run whose functions have these names has an environment to give the reward "environment"."""
    if EARNED in names and (environment is None or environment.tools):
        raise UsageError(
            f"the reward '{EARNED}' is what task.environment gives, and this run has none: name a function there that "
            "returns (text or None, reward), or another reward in task.rewards, task.correct and task.format"
        )


def talking(tokenizer: Any, environment: Environment, tasks: TaskSet) -> Any:
    """The tokenizer, with the environment's tools in its prompts.

    Raises:
        UsageError: the chat template shows no tools, or refuses several turns.
    """
    if environment.tools:
        tokenizer = with_tools(tokenizer, environment.tools)
    message = {"role": "tool" if environment.tools else "user", "content": "?"}
    replies_ids(tokenizer, [[message]], [not isinstance(tasks.eval[0].prompt, str)])
    return tokenizer


def turn_notes(config: RunConfig, environment: Environment | None) -> tuple[str, ...]:
    """What a run's first lines say of it."""
    most = f"at most {config.task.max_turns} turns per rollout (task.max_turns)"
    return () if environment is None else (f"{environment.name} answers the model's turns, {most}",)
