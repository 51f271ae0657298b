"""Renders chat templates within limits, in a process of its own: a script, so that it imports no torch.

Each input line is a JSON object: a template, its variables and conversations. Each output line is its answer: the
texts, or the first conversation that failed and why. The process ends with its input, or when a request uses too much
CPU time.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from typing import Any

MAX_CHARACTERS = 64 << 20
"""Most characters that one request may render."""


def main() -> None:
    """Serve until the input ends. Arguments: CPU seconds per request, bytes of data."""
    seconds, num_bytes = int(sys.argv[1]), int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    os.environ["USE_TORCH"] = "0"  # transformers would import it, and it is not needed
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (num_bytes, num_bytes))
    for line in sys.stdin:
        _limit_seconds(seconds)
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")
        answers.flush()


def _limit_seconds(seconds: int) -> None:
    """Limit the CPU time, so that a busy machine stops no template; the system kills a process that uses more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from transformers.utils.chat_template_utils import render_jinja_template

    texts: list[str] = []
    for place, messages in enumerate(request["conversations"]):
        try:
            text = render_jinja_template(
                conversations=[messages],
                chat_template=request["template"],
                add_generation_prompt=True,
                **request["variables"],
            )[0][0]
        except MemoryError:
            return _failure(place, "MemoryError", "it wants more memory than it may have")
        except Exception as error:  # jinja's own types: a template raises what it likes, such as "no system role"
            return _failure(place, type(error).__name__, str(error)[:1000])
        texts.append(text)
        if sum(map(len, texts)) > MAX_CHARACTERS:
            return _failure(place, "ValueError", f"it makes a text of {len(text):,} characters")
    return {"texts": texts}


def _failure(place: int, kind: str, message: str) -> dict[str, Any]:
    return {"place": place, "type": kind, "message": message}


if __name__ == "__main__":
    main()
