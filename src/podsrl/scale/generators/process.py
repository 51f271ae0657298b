"""A generator in a child process of this machine (`lib/child.py`).

Weights are in memory that both see (`weights.py`). What the child does stands in `child.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import IO, Any

from torch import Tensor

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate import EngineStats, Generator, Request, Watch, add_stats
from podsrl.lib.channel import Frame, Malformed
from podsrl.lib.child import Child, last_line
from podsrl.lib.parent import outside_the_run
from podsrl.records import decode_completions
from podsrl.scale.generators.weights import SharedWeights
from podsrl.scale.generators.worker import Blueprint, encode_requests, packed
from podsrl.sync.in_process import SyncError
from podsrl.types import Completion

_CLOSE_SECONDS = 5.0
"""How long a child has to end by itself; then it is killed."""


class ProcessGenerator(Generator):
    """A worker in a child process. The child starts at once, and the first call waits until it is ready.

    Its abilities are "beside" and those of the worker's generator that travel: "join", "start", "abort_rollouts",
    "watch" and "proof". A watch is one of parts that have names (`Steering`): the child makes it anew. Completions wait
    in a socket until they are read, and the child waits where that is full: a pool reads them at once.

    Args:
        blueprint: of the worker.
        timeout_seconds: of every wait for a message; beyond it the child is killed, and lost.
        variables: environment variables of the child.

    Raises:
        LostGenerator: by any call: the child has ended or does not answer; with the last line that it printed.
        UsageError: by any call: as of `Worker`.
    """

    version = 0

    def __init__(
        self, blueprint: Blueprint, *, timeout_seconds: float, variables: Mapping[str, str] | None = None
    ) -> None:
        self.stats, self.peak_kv_bytes = EngineStats(), 0
        self._timeout_seconds, self._is_open = timeout_seconds, False
        self._number = 0  # of the newest call; 0: the start
        self._facts: dict[str, Any] | None = None
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (it lasts as long as the child)
        self._child = Child(
            "podsrl.scale.generators.child:serve",
            variables={**outside_the_run(), **(variables or {})},
            output=self._printed,
        )
        with suppress(LostGenerator):  # the first call says so
            self._send({}, blueprint.to_json().encode())

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    @property
    def abilities(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"beside", *self._ready()["abilities"]}) - {"partial"}

    def generate(self, requests: Iterable[Request], *, watch: Watch | None = None) -> Iterator[Completion]:
        """Begin now, beside the caller; completions are decoded when they are read.

        Raises:
            UsageError: the watch is no `Steering`, or a state of its parts cannot be sent.
        """
        stream = self._stream(list(requests), packed(watch))
        next(stream)
        return stream  # type: ignore[return-value]

    def abort(self, ids: Iterable[str | tuple[str, int]]) -> None:
        self._send({"call": "abort", "ids": list(ids), "number": self._number})

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        with closing(SharedWeights()) as weights:
            weights.put(named_tensors, version)
            self.take(weights)

    def take(self, weights: SharedWeights) -> None:
        """Sample from these weights from now on.

        Raises:
            SyncError: others than these have arrived.
        """
        table = weights.table
        assert table is not None
        digest = self._call({"call": "load_weights", "table": table}, descriptor=weights.descriptor)
        if digest != table["digest"]:
            raise SyncError(f"generator process {self.pid} holds the weights {digest}, wanted {table['digest']}")
        self.version = table["version"]

    def describe(self, requests: Sequence[Request]) -> str:
        return str(self._call({"call": "describe"}, encode_requests(requests)))

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        token, logprob = self._call({"call": "first_logprob", "prompt_ids": list(prompt_ids)})
        return token, logprob

    def close(self) -> None:
        """End the child."""
        if self._facts is not None and not self._is_open and self._child.code is None:
            with suppress(LostGenerator):
                self._send({"call": "close"})
                self._child.wait(_CLOSE_SECONDS)
        self._child.kill()
        self._printed.close()

    def _stream(self, wanted: list[Request], watch: bytes) -> Iterator[Completion | None]:
        self._begin({"call": "generate", "num_watch_bytes": len(watch)}, watch + encode_requests(wanted))
        self._is_open = True
        try:
            yield None
            while "result" not in (frame := self._answer()).head:
                yield from decode_completions(frame.body)
            self._close_call(frame)
        finally:
            if self._is_open:
                self._give_up(wanted)

    def _give_up(self, wanted: Sequence[Request]) -> None:
        """End the open call's rollouts; their completions are dropped."""
        with suppress(PodsError):
            self.abort([request.id for request in wanted])
            while "result" not in (frame := self._answer()).head:
                pass
            self._close_call(frame)
        self._is_open = False

    def _close_call(self, frame: Frame) -> None:
        self._is_open = False
        result = frame.head["result"]
        self.stats = add_stats([self.stats, EngineStats(**result["stats"])])
        self.peak_kv_bytes = max(self.peak_kv_bytes, result["peak_kv_bytes"])

    def _call(self, head: dict[str, Any], body: bytes = b"", descriptor: int | None = None) -> Any:
        self._begin(head, body, descriptor)
        return self._answer().head["result"]

    def _begin(self, head: dict[str, Any], body: bytes = b"", descriptor: int | None = None) -> None:
        self._check_is_free()
        self._number += 1
        self._send(head | {"number": self._number}, body, descriptor)

    def _ready(self) -> dict[str, Any]:
        """Wait until the child has its generator; returns its facts."""
        if self._facts is None:
            self._facts = self._answer().head["result"]
        return self._facts

    def _check_is_free(self) -> None:
        self._ready()
        if self._is_open:
            raise UsageError("a call of generate is open; finish or close it first")

    def _send(self, head: dict[str, Any], body: bytes = b"", descriptor: int | None = None) -> None:
        try:
            self._child.channel.send(head, body, descriptor, seconds=self._timeout_seconds)
        except OSError:
            raise self._lost("it reads no messages") from None

    def _answer(self) -> Frame:
        """The next message of the newest call; those of a call that was left before its end are dropped."""
        while (frame := self._received()).head["number"] != self._number:
            pass
        if (error := frame.head.get("error")) is not None:
            self._is_open = False
            raise (UsageError if frame.head["is_usage"] else PodsError)(error)
        return frame

    def _received(self) -> Frame:
        """The next message."""
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
        return LostGenerator(f"generator process {self.pid} is lost ({how}){f': {line}' if line else ''}")
