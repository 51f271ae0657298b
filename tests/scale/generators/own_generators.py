"""Generators as a user writes them, for child processes: they count, raise, leave, or send nonsense."""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from podsrl.generate import Generator, Request, Setting
from podsrl.types import Rollout


class Counting(Generator):
    """Gives the numbers from `first` on."""

    def __init__(self, first: int) -> None:
        self.version, self.first = 0, first

    def generate(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        for request in requests:
            if request.prompt_ids == (99,):
                raise ValueError("a prompt of 99")
            ids = tuple(range(self.first, self.first + request.sampling.max_new_tokens))
            for index in request.indices:
                yield Rollout(
                    group_id=request.id,
                    index=index,
                    token_ids=ids,
                    logprobs=(0.1 + 1e-12,) * len(ids),
                    finish_reason="length",
                    version=self.version,
                )

    def abort(self, ids: Any) -> None: ...

    def load_weights(self, named_tensors: Any, version: int) -> None:
        self.version = version


def counting(setting: Setting, *, first: int = 3) -> Counting:
    return Counting(first)


def raising(setting: Setting) -> Counting:
    raise MemoryError("no memory today")


def leaving(setting: Setting) -> Counting:
    print("the last words", file=sys.stderr, flush=True)
    os._exit(7)


def garbling(setting: Setting) -> Counting:
    """Sends the parent a message that is none."""
    os.write(int(sys.argv[2]), struct.pack("<?QQ", False, 1, 0) + b"{")
    time.sleep(300)
    return Counting(1)
