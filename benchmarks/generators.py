"""A look at what a trainer asks of its generator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.timing import Clock
from podsrl.generate import Request, Watch
from podsrl.types import Rollout


class WatchedGenerator:
    """A generator whose CPU seconds are counted; all else is the generator within."""

    def __init__(self, generator: Any) -> None:
        vars(self).update(_generator=generator, cpu_seconds=0.0)

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        with self._counted():
            self._generator.submit(requests, watch=watch)

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        with self._counted():
            found: Sequence[Rollout] = self._generator.poll(seconds)
        return found

    @contextmanager
    def _counted(self) -> Iterator[None]:
        clock = Clock()
        yield
        self.cpu_seconds += clock.read().cpu_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            vars(self)[name] = value
        else:
            setattr(self._generator, name, value)
