"""Render chat messages to text by a tokenizer's template, in transformers' sandbox.

A template is a program that came with the model. The sandbox keeps it from Python; nothing keeps it from running for
long or from filling the memory (docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podsrl.policy.source import first_line

Conversation = Sequence[Mapping[str, Any]]


class RenderError(Exception):
    """A template rejected a conversation; the message is one line."""

    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place = place
        """Index of the conversation."""


def render(tokenizer: Any, conversations: Sequence[Conversation]) -> list[str]:
    """The text of each conversation, with the opening of the answer.

    Args:
        tokenizer: with a chat template, and with the tools that it shows (`with_tools`), if any.
        conversations: messages `{"role": ..., "content": ...}`; texts, or the tool calls of an assistant as a list.

    Raises:
        RenderError: the template rejects a conversation.
    """
    own = {} if tools_of(tokenizer) is None else {"tools": tools_of(tokenizer)}
    texts: list[str] = []
    for place, messages in enumerate(conversations):
        plain = [{key: _plain(value) for key, value in message.items()} for message in messages]
        try:
            text = tokenizer.apply_chat_template(plain, add_generation_prompt=True, tokenize=False, **own)
        except Exception as error:  # jinja's own types: a template raises what it likes, such as "no system role"
            raise RenderError(place, first_line(error)) from None
        texts.append(text)
    return texts


def tools_of(tokenizer: Any) -> list[dict[str, Any]] | None:
    """The schemas of the tools that the tokenizer's chat template shows."""
    return getattr(tokenizer, "shown_tools", None)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value
