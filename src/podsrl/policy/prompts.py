"""Prompts as tokens: plain text as it is, chat messages through the tokenizer's template.

The text of a data set is text: special tokens in it are encoded as so many characters (`control_tokens`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podsrl.errors import UsageError
from podsrl.policy.control_tokens import ControlTokens, control_tokens
from podsrl.policy.render import Conversation, RenderError, render
from podsrl.types import Task, TokenMarkup

Ids = tuple[int, ...]


def prompt_ids(tokenizer: Any, task: Task) -> Ids:
    """A task's prompt as tokens; see `prompts_ids`."""
    return prompts_ids(tokenizer, [task])[0]


def prompts_ids(tokenizer: Any, tasks: Sequence[Task]) -> list[Ids]:
    """The prompts of many tasks as tokens, in one call of the tokenizer for each kind.

    Args:
        tokenizer: of the model.
        tasks: with text, chat messages, or some of both. Special tokens in them are text, except in `TokenMarkup`.

    Returns:
        Token ids, in the order of the tasks.

    Raises:
        UsageError: an empty prompt; chat messages for a tokenizer whose template is missing, refuses them, or takes
            more time or memory than a template may; special tokens in a text, for a tokenizer that cannot encode them
            as text.
    """
    control = control_tokens(tokenizer)
    texts = [i for i, task in enumerate(tasks) if isinstance(task.prompt, str)]
    chats = [i for i, task in enumerate(tasks) if not isinstance(task.prompt, str)]
    found = dict(zip(texts, _text_ids(tokenizer, control, [tasks[i] for i in texts]), strict=True))
    found |= dict(zip(chats, _chat_ids(tokenizer, control, [tasks[i] for i in chats]), strict=True))
    for i, task in enumerate(tasks):
        if not found[i]:
            raise UsageError(f"prompt of task {task.id!r} has 0 tokens: give it a text, or remove the task")
    return [found[i] for i in range(len(tasks))]


def special_token_in(tokenizer: Any, task: Task) -> tuple[str, bool] | None:
    """A special token whose text a question holds, and whether it is encoded as text there.

    The system prompt of a config does not count: its author may write special tokens.

    Args:
        tokenizer: of the model.
        task: as `podsrl.tasks.load_tasks` makes it.
    """
    control = control_tokens(tokenizer)
    for text in _texts(task):
        if token := control.find_token(text):
            return token, not isinstance(text, TokenMarkup)
    return None


def check_chat_template(tokenizer: Any, task: Task) -> None:
    """See that a task's system prompt reaches the model.

    Raises:
        UsageError: the tokenizer has no chat template, or its template drops or refuses the system message.

    Example:
        >>> check_chat_template(tokenizer, Task(id="a", prompt="plain text passes", answer="1"))  # doctest: +SKIP
    """
    if isinstance(task.prompt, str):
        return
    [rendered] = _rendered(tokenizer, [task], [task.prompt])
    for message in task.prompt:
        if message["role"] == "system" and message["content"].strip() not in rendered:
            raise UsageError(
                "the chat template of the model's tokenizer drops the system prompt, so the model would never see it: "
                "leave out task.system_prompt (and write it into the questions), or use a model whose template has one"
            )


def _text_ids(tokenizer: Any, control: ControlTokens, tasks: Sequence[Task]) -> list[Ids]:
    texts = [task.prompt for task in tasks if isinstance(task.prompt, str)]
    marked = [i for i, text in enumerate(texts) if control.find(text)]
    found = dict(zip(marked, control.encode_text([texts[i] for i in marked]), strict=True))
    plain = [i for i in range(len(texts)) if i not in found]
    if plain:
        encoded = tokenizer([str(texts[i]) for i in plain])["input_ids"]
        found |= {i: tuple(ids) for i, ids in zip(plain, encoded, strict=True)}
    return [found[i] for i in range(len(texts))]


def _chat_ids(tokenizer: Any, control: ControlTokens, tasks: Sequence[Task]) -> list[Ids]:
    chats: list[Conversation] = [task.prompt for task in tasks if not isinstance(task.prompt, str)]
    stand_ins: dict[int, Mapping[str, str]] = {}
    for i, messages in enumerate(chats):
        if any(control.find(text) for message in messages for text in message.values()):
            chats[i], stand_ins[i] = control.stand_in(messages)
    rendered = _rendered(tokenizer, tasks, chats)
    marked = control.encode_rendered([(rendered[i], characters) for i, characters in stand_ins.items()])
    found = dict(zip(stand_ins, marked, strict=True))
    plain = [i for i in range(len(chats)) if i not in found]
    if plain:
        encoded = tokenizer([rendered[i] for i in plain], add_special_tokens=False)[
            "input_ids"
        ]  # the template's are in
        found |= {i: tuple(ids) for i, ids in zip(plain, encoded, strict=True)}
    return [found[i] for i in range(len(chats))]


def _texts(task: Task) -> list[str]:
    """All text of a question's but a config's system prompt."""
    if isinstance(task.prompt, str):
        return [task.prompt]
    own = [m for m in task.prompt if m["role"] != "system" or not isinstance(m["content"], TokenMarkup)]
    return [text for message in own for text in message.values()]


def _rendered(tokenizer: Any, tasks: Sequence[Task], chats: Sequence[Conversation]) -> list[str]:
    if not tasks:
        return []
    if tokenizer.chat_template is None:
        raise UsageError(
            f"task {tasks[0].id!r} is asked in chat messages, but the model's tokenizer has no chat template: "
            "use a model that has one (an instruct model), or ask in plain text with task.chat = false"
        )
    try:
        return render(tokenizer, chats)
    except RenderError as error:
        roles = ", ".join(message.get("role", "none") for message in chats[error.place])
        raise UsageError(
            f"the chat template of the model's tokenizer refuses task {tasks[error.place].id!r} (roles {roles}): "
            f"{error}; leave out task.system_prompt if it knows no system role"
        ) from None
