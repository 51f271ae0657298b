"""A look at what a trainer asks of its generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.timing import Clock
from podsrl.generate import Request, Watch
from podsrl.types import Completion


class WatchedGenerator:
    """A generator that keeps its last requests and counts seconds and CPU seconds of what runs; all else is the generator within."""

    def __init__(self, generator: Any) -> None:
        vars(self).update(_generator=generator, requests=[], seconds=0.0, cpu_seconds=0.0)

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        self.requests = list(requests)
        self._timed(lambda: self._generator.submit(self.requests, watch=watch))

    def poll(self, seconds: float | None = None) -> Sequence[Completion]:
        found: Sequence[Completion] = self._timed(lambda: self._generator.poll(seconds))
        return found

    def _timed(self, call: Callable[[], Any]) -> Any:
        clock = Clock()
        found = call()
        taken = clock.read()
        self.seconds += taken.seconds
        self.cpu_seconds += taken.cpu_seconds
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            vars(self)[name] = value
        else:
            setattr(self._generator, name, value)
