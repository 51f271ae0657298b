"""A clock for the seconds of a step's stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

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
                torch.cuda.synchronize(self._device)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def total(self) -> float:
        """Seconds since the clock was made, stages and all between them."""
        return time.perf_counter() - self._start

    def going_on(self) -> StageClock:
        """This clock, of whose time until now the stages alone count."""
        self._start = time.perf_counter() - sum(self.seconds.values())
        return self
