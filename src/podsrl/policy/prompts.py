"""Prompts as tokens: plain text as it is, chat messages through the tokenizer's template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podsrl.errors import UsageError
from podsrl.policy.hub import first_line
from podsrl.types import Task


def prompt_ids(tokenizer: Any, task: Task) -> tuple[int, ...]:
    """A task's prompt as tokens; see `prompts_ids`."""
    return prompts_ids(tokenizer, [task])[0]


def prompts_ids(tokenizer: Any, tasks: Sequence[Task]) -> list[tuple[int, ...]]:
    """The prompts of many tasks as tokens, in one call of the tokenizer for each kind.

    Args:
        tokenizer: of the model.
        tasks: with text, chat messages, or some of both.

    Returns:
        Token ids, in the order of the tasks.

    Raises:
        UsageError: an empty prompt, or chat messages for a tokenizer whose template is missing or refuses them.
    """
    texts = [i for i, task in enumerate(tasks) if isinstance(task.prompt, str)]
    chats = [i for i, task in enumerate(tasks) if not isinstance(task.prompt, str)]
    found: dict[int, tuple[int, ...]] = {}
    if texts:
        encoded = tokenizer([tasks[i].prompt for i in texts])["input_ids"]
        found |= {i: tuple(ids) for i, ids in zip(texts, encoded, strict=True)}
    if chats:
        rendered = [_render(tokenizer, tasks[i]) for i in chats]
        encoded = tokenizer(rendered, add_special_tokens=False)["input_ids"]  # the template has written them
        found |= {i: tuple(ids) for i, ids in zip(chats, encoded, strict=True)}
    for i, task in enumerate(tasks):
        if not found[i]:
            raise UsageError(f"prompt of task {task.id!r} has 0 tokens: give it a text, or remove the task")
    return [found[i] for i in range(len(tasks))]


def check_chat_template(tokenizer: Any, task: Task) -> None:
    """See that a task's system prompt reaches the model.

    Raises:
        UsageError: the tokenizer has no chat template, or its template drops or refuses the system message.

    Example:
        >>> check_chat_template(tokenizer, Task(id="a", prompt="plain text passes", answer="1"))  # doctest: +SKIP
    """
    if isinstance(task.prompt, str):
        return
    rendered = _render(tokenizer, task)
    for message in task.prompt:
        if message["role"] == "system" and message["content"].strip() not in rendered:
            raise UsageError(
                "the chat template of the model's tokenizer drops the system prompt, so the model would never see it: "
                "leave out task.system_prompt (and write it into the questions), or use a model whose template has one"
            )


def _render(tokenizer: Any, task: Task) -> str:
    if tokenizer.chat_template is None:
        raise UsageError(
            f"task {task.id!r} is asked in chat messages, but the model's tokenizer has no chat template: "
            "use a model that has one (an instruct model), or ask in plain text with task.chat = false"
        )
    messages = [dict(message) for message in task.prompt if not isinstance(message, str)]
    try:
        text: str = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # jinja's own types: a template raises what it likes, such as "no system role"
        roles = ", ".join(message.get("role", "none") for message in messages)
        raise UsageError(
            f"the chat template of the model's tokenizer refuses task {task.id!r} (roles {roles}): "
            f"{first_line(error)}; leave out task.system_prompt if it knows no system role"
        ) from None
    return text
