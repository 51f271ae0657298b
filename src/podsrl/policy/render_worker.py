"""Renders chat templates within limits, in a process of its own: a script, so that it imports no torch.

Each message is a template, its variables and conversations. The answer is the texts, or the first conversation that
failed and why. The process ends with its channel, or when a request uses too much CPU time.
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from podsrl.lib.channel import Channel

MAX_CHARACTERS = 64 << 20
"""Most characters that one request may render."""
SECONDS_EACH = 0.1
"""CPU time that a conversation may take, and again for each million characters of its text; else a set of ten thousand
questions would take hours."""


def main(channel: Channel, seconds: int, num_bytes: int) -> None:
    """Serve until the channel is closed. A request may take `seconds` of CPU time, and all data `num_bytes`."""
    os.environ["USE_TORCH"] = "0"  # transformers would import it, and it is not needed
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (num_bytes, num_bytes))
    while (frame := channel.receive()) is not None:
        _limit_seconds(seconds)
        channel.send(_answer(frame.head))


def _limit_seconds(seconds: int) -> None:
    """Limit the CPU time, so that a busy machine stops no template; the system kills a process that uses more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from transformers.utils.chat_template_utils import render_jinja_template

    texts: list[str] = []
    for place, messages in enumerate(request["conversations"]):
        render = partial(
            render_jinja_template,
            conversations=[messages],
            chat_template=request["template"],
            tools=request["tools"],
            add_generation_prompt=True,
            **request["variables"],
        )
        try:
            text, seconds = _timed(render)
            if seconds > (most := SECONDS_EACH * (1 + len(text) / 1e6)):  # the first time it is compiled, too
                seconds = min(_timed(render)[1] for _ in range(2))
            if seconds > most:
                return _failure(place, "ValueError", f"it takes {seconds:.2g} s per conversation, wanted {most:.1g}")
        except MemoryError:
            return _failure(place, "MemoryError", "it wants more memory than it may have")
        except Exception as error:  # jinja's own types: a template raises what it likes, such as "no system role"
            return _failure(place, type(error).__name__, str(error)[:1000])
        texts.append(text)
        if sum(map(len, texts)) > MAX_CHARACTERS:
            return _failure(place, "ValueError", f"it makes a text of {len(text):,} characters")
    return {"texts": texts}


def _timed(render: Callable[[], Any]) -> tuple[str, float]:
    start = time.process_time()
    text: str = render()[0][0]
    return text, time.process_time() - start


def _failure(place: int, kind: str, message: str) -> dict[str, Any]:
    return {"place": place, "type": kind, "message": message}
