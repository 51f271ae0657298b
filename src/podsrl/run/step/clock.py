"""The stages of a step, and a clock for their seconds. Nothing here loads torch before a clock is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

from podsrl.lib.stages import STAGES


class StageClock:
    """Adds up the seconds of each stage of one step; on CUDA a stage ends when its kernels have ended."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = time.perf_counter()
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            if self._device.type == "cuda":
                import torch

                torch.cuda.synchronize(self._device)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def total(self) -> float:
        """Seconds since the clock was made, stages and all between them."""
        return time.perf_counter() - self._start

    def going_on(self) -> StageClock:
        """This clock, of whose time until now the stages alone count."""
        self._start = time.perf_counter() - sum(self.seconds.values())
        return self


class _Clocked(Protocol):
    clock: StageClock


_Self = TypeVar("_Self", bound=_Clocked)
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")
_Verb = Callable[Concatenate[_Self, _Arguments], _Answer]


def timed(stage: str) -> Callable[[_Verb[_Self, _Arguments, _Answer]], _Verb[_Self, _Arguments, _Answer]]:
    """Count a method's seconds as a stage's, on its object's `clock`."""

    def timing(verb: _Verb[_Self, _Arguments, _Answer]) -> _Verb[_Self, _Arguments, _Answer]:
        @wraps(verb)
        def timed_verb(self: _Self, /, *arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Answer:
            with self.clock.stage(stage):
                return verb(self, *arguments, **options)

        return timed_verb

    return timing
