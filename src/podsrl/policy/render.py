"""Render chat messages to text by a tokenizer's template, within limits of time and memory.

A template is a program that came with the model. It runs in a process of its own (`render_worker`), so that an endless
loop in it is an error and not a run that hangs.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from podsrl.policy.source import first_line, line_of

MAX_SECONDS = 10
"""CPU time per request; a common template takes less than 0.1 ms per conversation."""
MAX_BYTES = 1 << 30
"""Memory for data of the process."""
_BATCH, _BATCH_CHARACTERS = 256, 4 << 20
"""Most conversations per request, and most characters."""

Conversation = Sequence[Mapping[str, str]]


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
        tokenizer: with a chat template.
        conversations: messages `{"role": ..., "content": ...}`.

    Raises:
        RenderError: a template rejects a conversation or exceeds a limit.
    """
    plain = [[{key: str(text) for key, text in message.items()} for message in messages] for messages in conversations]
    if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        return [_by_itself(tokenizer, place, messages) for place, messages in enumerate(plain)]
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:  # several templates, and none of them is the default
        raise RenderError(0, first_line(error)) from None
    texts: list[str] = []
    for batch in _batches(plain):
        request = {"template": template, "variables": tokenizer.special_tokens_map, "conversations": batch}
        answer = _renderer.ask(json.dumps(request, default=str))
        if "texts" not in answer:
            raise RenderError(len(texts) + answer["place"], line_of(f"{answer['type']}: {answer['message']}"))
        texts += answer["texts"]
    return texts


def _batches(conversations: Sequence[list[dict[str, str]]]) -> Iterator[list[list[dict[str, str]]]]:
    batch: list[list[dict[str, str]]] = []
    num_characters = 0
    for messages in conversations:
        length = sum(len(text) for message in messages for text in message.values())
        if batch and (len(batch) == _BATCH or num_characters + length > _BATCH_CHARACTERS):
            yield batch
            batch, num_characters = [], 0
        batch.append(messages)
        num_characters += length
    if batch:
        yield batch


def _by_itself(tokenizer: Any, place: int, messages: list[dict[str, str]]) -> str:
    try:
        text: str = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # as in `render_worker`
        raise RenderError(place, first_line(error)) from None
    return text


class _Renderer:
    """The rendering process: started by the first request and kept; after a fork, each process has its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def ask(self, request: str) -> dict[str, Any]:
        """Send one line and read one line."""
        with self._lock:
            process = self._running()
            try:
                answer: dict[str, Any] | None = _exchange(process, request)
            except BaseException:  # an interrupt: the pending answer would be read as the next one
                self._end()
                raise
            if answer is None:
                self._end()
        return answer or {"place": 0, "type": "RuntimeError", "message": _how_it_ended(process.returncode)}

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._owner != os.getpid():
            self._process, self._owner = _start(), os.getpid()
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.communicate()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()


_renderer = _Renderer()
atexit.register(_renderer.close)


def _start() -> subprocess.Popen[str]:
    script = str(Path(__file__).with_name("render_worker.py"))
    main = (
        f"import runpy, sys; sys.path[:] = {[*map(str, sys.path)]!r}; runpy.run_path({script!r}, run_name='__main__')"
    )
    return subprocess.Popen(
        [sys.executable, "-P", "-c", main, str(MAX_SECONDS), str(MAX_BYTES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C in the terminal is for the main process alone
    )


def _exchange(process: subprocess.Popen[str], request: str) -> dict[str, Any] | None:
    """None: the process has ended instead of answering."""
    assert process.stdin is not None and process.stdout is not None  # both are pipes
    try:
        process.stdin.write(f"{request}\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    if line.endswith("\n"):
        answer: dict[str, Any] = json.loads(line)
        return answer
    process.wait()
    return None


def _how_it_ended(code: int) -> str:
    if code == -signal.SIGXCPU:
        return f"it takes more than {MAX_SECONDS} seconds of CPU time"
    return f"the process that renders it ended with code {code}"
