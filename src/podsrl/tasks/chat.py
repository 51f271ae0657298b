"""Give questions their final form: plain text, or chat messages after a system prompt."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from podsrl.errors import UsageError, short
from podsrl.lib.user_function import calling
from podsrl.tasks.base import TaskSet, TasksOnDemand
from podsrl.tasks.rows import Prompt, check_characters
from podsrl.types import Task, TokenMarkup

SYSTEM_PROMPTS = {
    "pods_single_gpu": (
        "Answer the user's question. Reason step by step first, check your steps as you go, and correct any mistake "
        "that you find in them. Write your reasoning between <think> and </think> and then only the final answer "
        "between <answer> and </answer>, like this: <think> your reasoning </think> <answer> your answer </answer>. "
        "The length of your response is limited: keep the reasoning short enough to reach the answer."
    ),
    "pods_multi_gpu": (
        "You are a helpful AI assistant. You first think about the question as an internal monologue and then give "
        "the user your answer. Respond in the following format:\n<think>\n...\n</think>\n<answer>\n...\n</answer>"
    ),
}
"""The two system prompts of PODS (arXiv 2504.13818 and its released code), in words of our own."""


def ask(
    tasks: TaskSet,
    *,
    chat: bool | None = None,
    system_prompt: str | None = None,
    special_tokens: Literal["text", "tokens"] = "text",
) -> TaskSet:
    """Turn the prompts of a task set into their final form.

    Args:
        tasks: from a loader. A line break at the end of a text prompt is not part of the chat message.
        chat: send text prompts as a chat message; None: as `tasks.chat` says. Prompts that are messages stay as they
            are.
        system_prompt: the system message of every chat: a key of `SYSTEM_PROMPTS` or the text itself; None: none. It
            becomes `TokenMarkup`, because the author of a config may write special tokens.
        special_tokens: "tokens" makes every prompt `TokenMarkup`; "text" leaves that to the loader.

    Raises:
        UsageError: prompts are messages, but `chat` is False; there is a system prompt, but a question is plain text or
            has a system message of its own; the system prompt is empty or nearly a known name; a text holds characters
            that a file cannot hold.

    Example:
        >>> seven = Task(id="a", prompt="3+4=\\n", answer="7")
        >>> ask(TaskSet(name="sums", train=[seven], eval=(seven,)), chat=True).eval[0].prompt
        ({'role': 'user', 'content': '3+4='},)
    """
    system = None if system_prompt is None else _system_message(system_prompt)
    is_chat, is_markup = tasks.chat if chat is None else chat, special_tokens == "tokens"
    set_name = f"task set {tasks.name!r}"

    def asked(questions: Sequence[Task], place: int) -> Task:
        with calling(set_name):
            task = questions[place]
        return _asked(task, is_chat=is_chat, is_text_wanted=chat is False, system=system, is_markup=is_markup)

    sides = {}
    for side, questions in (("train", tasks.train), ("eval", tasks.eval)):
        if isinstance(questions, Mapping) or not (hasattr(questions, "__len__") and hasattr(questions, "__getitem__")):
            raise UsageError(f"{side} of {set_name} is a {type(questions).__name__}; wanted a list or tuple of Task")
        with calling(set_name):
            places = range(len(questions))
        sides[side] = TasksOnDemand(places, partial(asked, questions))
    train = sides["train"]  # tasks made on demand stay so
    return replace(
        tasks, train=tuple(train) if isinstance(tasks.train, (tuple, list)) else train, eval=tuple(sides["eval"])
    )


def _asked(
    task: Task, *, is_chat: bool, is_text_wanted: bool, system: Mapping[str, str] | None, is_markup: bool
) -> Task:
    _check_task(task)
    if is_markup:
        task = replace(task, prompt=_as_markup(task.prompt))
    messages = task.prompt
    if isinstance(messages, str):
        if not is_chat and system is not None:
            raise UsageError(
                f"task.system_prompt is set, but task '{task.id}' is asked as plain text: set task.chat = true, or "
                "leave the system prompt out"
            )
        if not is_chat:
            return task
        messages = ({"role": "user", "content": type(messages)(messages.removesuffix("\n"))},)
    elif is_text_wanted:
        raise UsageError(f"task.chat = false, but task '{task.id}' is chat messages: leave task.chat out")
    if system is None:
        return task if messages is task.prompt else replace(task, prompt=messages)
    if any(message["role"] == "system" for message in messages):
        raise UsageError(
            f"task.system_prompt is set, but task '{task.id}' has a system message of its own: leave one of them out"
        )
    return replace(task, prompt=(system, *messages))


def _as_markup(prompt: Prompt) -> Prompt:
    if isinstance(prompt, str):
        return TokenMarkup(prompt)
    return tuple({**message, "content": TokenMarkup(message["content"])} for message in prompt)


def _check_task(task: object) -> None:
    """A task from a loader of the user's own may hold anything."""
    if not isinstance(task, Task):
        raise UsageError(f"a task set holds {short(task)}; wanted a Task")
    for field, value in (("id", task.id), ("answer", task.answer)):
        if not isinstance(value, str):
            raise UsageError(f"the {field} of task {short(task.id)} is {short(value)}; wanted a text")
    prompt = task.prompt
    if not isinstance(prompt, str) and not (isinstance(prompt, (tuple, list)) and all(map(_is_message, prompt))):
        wanted = "wanted a text, or messages with the texts 'role' and 'content'"
        raise UsageError(f"the prompt of task {task.id!r} is {short(prompt)}; {wanted}")
    _check_characters(task)


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and all(isinstance(message.get(key), str) for key in ("role", "content"))


def _check_characters(task: Task) -> None:
    texts = (task.prompt,) if isinstance(task.prompt, str) else (message["content"] for message in task.prompt)
    for text in texts:
        check_characters(f"the prompt of task {task.id!r}", text)
    check_characters(f"the answer of task {task.id!r}", task.answer)


def _system_message(text: str) -> Mapping[str, str]:
    if not text.strip():
        raise UsageError("task.system_prompt is empty; leave it out for none")
    check_characters("task.system_prompt", text)
    near = difflib.get_close_matches(text, SYSTEM_PROMPTS, n=1, cutoff=0.8)
    if near and text not in SYSTEM_PROMPTS:
        raise UsageError(f"task.system_prompt = '{text}' is unknown. Did you mean '{near[0]}'?")
    return {"role": "system", "content": TokenMarkup(SYSTEM_PROMPTS.get(text, text))}
