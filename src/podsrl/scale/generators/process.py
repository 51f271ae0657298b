"""A generator in a child process of this machine (`lib/child.py`).

Weights are in memory that both see (`weights.py`). What the child does stands in `child.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import IO, Any

from torch import Tensor

from podsrl.errors import LostGenerator
from podsrl.lib.channel import Channel, Frame, Malformed
from podsrl.lib.child import Child, Lost, last_line
from podsrl.lib.parent import outside_the_run
from podsrl.scale.generators.remote import RemoteGenerator
from podsrl.scale.generators.weights import SharedWeights
from podsrl.scale.generators.worker import Blueprint

_CLOSE_SECONDS = 5.0
"""How long a child has to end by itself; then it is killed."""


class ProcessGenerator(RemoteGenerator):
    """A worker in a child process, which starts at once.

    Args:
        blueprint: of the worker.
        timeout_seconds: beyond so long a silence while something is awaited the child is killed, and lost.
        variables: environment variables of the child.

    Raises:
        LostGenerator: by any call: the child has ended or does not answer; with the last line that it printed.
        UsageError: by any call: as of `Worker`.
    """

    def __init__(
        self, blueprint: Blueprint, *, timeout_seconds: float, variables: Mapping[str, str] | None = None
    ) -> None:
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (it lasts as long as the child)
        self._child = Child(
            "podsrl.scale.generators.child:serve",
            variables={**outside_the_run(), **(variables or {})},
            output=self._printed,
        )
        name = f"generator process {self.pid}"
        super().__init__(name, blueprint, partial(_received, self._child.channel), timeout_seconds)

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        with closing(SharedWeights()) as weights:
            weights.put(named_tensors, version)
            weights.give(self)

    def close(self) -> None:
        """End the child."""
        if self._loss is None and self._answers[0] is not None and not self.num_unfinished:
            with suppress(LostGenerator):
                self._sent({"call": "close"}, b"")
                self._child.wait(_CLOSE_SECONDS)
        self._child.kill()
        self._printed.close()

    def _send(self, head: dict[str, Any], body: bytes, data: Any) -> None:
        try:
            self._child.channel.send(head, body, data, seconds=self._timeout_seconds)
        except OSError:
            raise Lost("it reads no messages") from None

    def _lost(self, reason: str) -> LostGenerator:
        silent = f"no message within scale.timeout_seconds = {self._timeout_seconds:g}"
        how, line = self._child.lost(reason or silent), last_line(self._printed)
        return LostGenerator(f"{self._name} is lost ({how}){f': {line}' if line else ''}")


def _received(channel: Channel, seconds: float) -> Frame:
    reason = "it closed its connection"
    try:
        if (frame := channel.receive(seconds)) is not None:
            return frame
    except TimeoutError:
        raise
    except Malformed as error:
        reason = f"it sent {error}"
    except (OSError, ValueError):
        pass  # it is closed
    raise Lost(reason)
