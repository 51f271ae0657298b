"""Render chat messages to text by a tokenizer's template, within limits of time and memory.

A template is a program that came with the model. It runs in a process of its own (`render_worker`), so that an endless
loop in it is an error and not a run that hangs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from podsrl.lib.child import Child, Lost
from podsrl.policy.source import first_line, line_of

MAX_SECONDS = 10
"""CPU time per request; a common template takes less than 0.1 ms per conversation."""
MAX_BYTES = 1 << 30
"""Memory for data of the process."""
WAIT_SECONDS = 600.0
"""Limit for an answer, on a busy machine."""
_BATCH = 16
"""Most conversations per request: enough that the process's messages take little of the time."""

Conversation = Sequence[Mapping[str, Any]]


class RenderError(Exception):
    """A template rejected a conversation or exceeded a limit; the message is one line."""

    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place = place
        """Index of the conversation; if it is unknown, of the first that may be at fault."""


def render(tokenizer: Any, conversations: Sequence[Conversation]) -> list[str]:
    """The text of each conversation, with the opening of the answer.

    A tokenizer whose class overrides `apply_chat_template` renders in this process: its code does not come from the
    model's folder.

    Args:
        tokenizer: with a chat template, and with the tools that it shows (`with_tools`), if any.
        conversations: messages `{"role": ..., "content": ...}`; texts, or the tool calls of an assistant as a list.

    Raises:
        RenderError: a template rejects a conversation or exceeds a limit.
    """
    plain = [
        [{key: _plain(each) for key, each in message.items()} for message in messages] for messages in conversations
    ]
    if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        return [_by_itself(tokenizer, place, messages) for place, messages in enumerate(plain)]
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:  # several templates, and none of them is the default
        raise RenderError(0, first_line(error)) from None
    variables = json.loads(json.dumps(tokenizer.special_tokens_map, default=str))
    texts: list[str] = []
    for start in range(0, len(plain), _BATCH):
        batch = plain[start : start + _BATCH]
        request = {"template": template, "variables": variables, "tools": tools_of(tokenizer), "conversations": batch}
        answer = _renderer.ask(request)
        if "texts" not in answer:
            raise RenderError(len(texts) + answer["place"], line_of(f"{answer['type']}: {answer['message']}"))
        texts += answer["texts"]
    return texts


def tools_of(tokenizer: Any) -> list[dict[str, Any]] | None:
    """The schemas of the tools that the tokenizer's chat template shows."""
    return getattr(tokenizer, "shown_tools", None)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value


def _by_itself(tokenizer: Any, place: int, messages: list[dict[str, Any]]) -> str:
    own = {} if tools_of(tokenizer) is None else {"tools": tools_of(tokenizer)}
    try:
        text: str = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **own)
    except Exception as error:  # as in `render_worker`
        raise RenderError(place, first_line(error)) from None
    return text


class _Renderer:
    """The rendering process: started by the first request and kept; after a fork, each process has its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._owner = 0

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and wait for its answer."""
        with self._lock:
            if self._child is None or self._child.code is not None or self._owner != os.getpid():
                self._child, self._owner = _start(), os.getpid()
            try:
                answer: dict[str, Any] = self._child.ask(request, seconds=WAIT_SECONDS).head
            except Lost as error:
                is_slow = self._child.code == -signal.SIGXCPU
                why = f"it takes more than {MAX_SECONDS} seconds of CPU time" if is_slow else f"its process: {error}"
                answer = {"place": 0, "type": "RuntimeError", "message": why}
            return answer

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._child = None


_renderer = _Renderer()


def _start() -> Child:
    script = Path(__file__).with_name("render_worker.py")  # a module of this package would bring torch
    return Child(f"{script}:main", MAX_SECONDS, MAX_BYTES, output=subprocess.DEVNULL, ends_itself=True)
