"""Tools in a model's prompts: the schemas of functions, as its chat template shows them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from os.path import commonprefix
from typing import Any

from transformers.utils import get_json_schema

from podsrl.errors import UsageError, short
from podsrl.lib.tool_calls import calls_in
from podsrl.policy.render import RenderError, render
from podsrl.policy.source import first_line

_CURE = "use a model that was trained to call tools, or answer its turns with task.environment"


def with_tools(tokenizer: Any, tools: Mapping[str, Callable[..., Any]]) -> Any:
    """A copy of a tokenizer whose chat template shows these tools in every conversation.

    Args:
        tools: functions by the names that the model calls. Each parameter has a type, and a line under "Args:" in the
            docstring; transformers' `get_json_schema` reads them.

    Raises:
        UsageError: a function has no such types or docstring; the tokenizer's chat template shows no tools, or teaches
            a form of calls that cannot be read (`podsrl.lib.tool_calls`).
    """
    shown = copy.copy(tokenizer)
    shown.shown_tools = [_schema(name, function) for name, function in tools.items()]
    question = {"role": "user", "content": "?"}
    call = {"name": next(iter(tools)), "arguments": {"x": "one"}}
    answer = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]}
    try:
        [prompt] = render(shown, [[question]])
        plain, called = render(tokenizer, [[question], [question, answer]])
    except (RenderError, UsageError) as error:
        raise UsageError(f"the chat template of the model's tokenizer refuses task.tools: {error}; {_CURE}") from None
    if prompt == plain or not all(name in prompt for name in tools):
        raise UsageError(f"the chat template of the model's tokenizer shows no tools, so task.tools is no use: {_CURE}")
    written = called[len(commonprefix([plain, called])) :]  # noqa: RUF071  (of texts, as is meant)
    read = tokenizer.decode(tokenizer(written, add_special_tokens=False)["input_ids"], skip_special_tokens=True)
    if calls_in(read) != [(call["name"], call["arguments"])]:
        raise UsageError(
            f"the chat template of the model's tokenizer writes a tool call as {short(read.strip())}, which task.tools "
            "cannot read; wanted <tool_call>…</tool_call>, or one JSON object with name and parameters: use another "
            "model, or task.environment"
        )
    return shown


def _schema(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        schema: dict[str, Any] = get_json_schema(function)
    except Exception as error:  # transformers' own kinds, or whatever the types of a user raise
        raise UsageError(
            f"task.tools: {name!r} cannot be shown to the model: {first_line(error)}; wanted a type for each "
            'parameter, and a docstring that describes the function and, under "Args:", each parameter'
        ) from None
    return schema
