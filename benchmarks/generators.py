"""A look at what a trainer asks of its generator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.timing import Clock
from podsrl.generate import Request
from podsrl.types import Completion


class WatchedGenerator:
    """A generator that keeps its last requests and counts seconds and CPU seconds; all else is the generator within."""

    def __init__(self, generator: Any) -> None:
        vars(self).update(_generator=generator, requests=[], seconds=0.0, cpu_seconds=0.0)

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """All completions, once the last one is finished."""
        self.requests = list(requests)
        clock = Clock()
        completions = list(self._generator.generate(self.requests))
        taken = clock.read()
        self.seconds += taken.seconds
        self.cpu_seconds += taken.cpu_seconds
        return iter(completions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            vars(self)[name] = value
        else:
            setattr(self._generator, name, value)
