"""A generator in a child process of this machine (`lib/child.py`).

Weights are in memory that both see (`weights.py`). What the child does stands in `child.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from typing import IO, Any

from torch import Tensor

from podsrl.errors import LostGenerator
from podsrl.lib.channel import Frame, Malformed
from podsrl.lib.child import Child, last_line
from podsrl.lib.parent import outside_the_run
from podsrl.scale.generators.remote import RemoteGenerator
from podsrl.scale.generators.weights import SharedWeights
from podsrl.scale.generators.worker import Blueprint

_CLOSE_SECONDS = 5.0
"""How long a child has to end by itself; then it is killed."""


class ProcessGenerator(RemoteGenerator):
    """A worker in a child process, which starts at once.

    Completions wait in a socket until they are read, and the child waits where that is full: a pool reads them at once.

    Args:
        blueprint: of the worker.
        timeout_seconds: of every wait for a message; beyond it the child is killed, and lost.
        variables: environment variables of the child.

    Raises:
        LostGenerator: by any call: the child has ended or does not answer; with the last line that it printed.
        UsageError: by any call: as of `Worker`.
    """

    def __init__(
        self, blueprint: Blueprint, *, timeout_seconds: float, variables: Mapping[str, str] | None = None
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (it lasts as long as the child)
        self._child = Child(
            "podsrl.scale.generators.child:serve",
            variables={**outside_the_run(), **(variables or {})},
            output=self._printed,
        )
        super().__init__(f"generator process {self.pid}")
        self._start(blueprint)

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
        if self._facts is not None and not self._is_open and self._child.code is None:
            with suppress(LostGenerator):
                self._send({"call": "close"})
                self._child.wait(_CLOSE_SECONDS)
        self._child.kill()
        self._printed.close()

    def _send(self, head: dict[str, Any], body: bytes = b"", data: int | None = None) -> None:
        try:
            self._child.channel.send(head, body, data, seconds=self._timeout_seconds)
        except OSError:
            raise self._lost("it reads no messages") from None

    def _received(self) -> Frame:
        reason = "it closed its connection"
        try:
            if (frame := self._child.channel.receive(self._timeout_seconds)) is not None:
                return frame
        except TimeoutError:
            reason = f"no message within scale.timeout_seconds = {self._timeout_seconds:g}"
        except Malformed as error:
            reason = f"it sent {error}"
        except (OSError, ValueError):
            pass  # it is closed
        raise self._lost(reason)

    def _lost(self, reason: str) -> LostGenerator:
        """What to raise; the child has ended afterwards."""
        self._is_open = False
        how, line = self._child.lost(reason), last_line(self._printed)
        return LostGenerator(f"{self._name} is lost ({how}){f': {line}' if line else ''}")
