"""A generator whose worker lives elsewhere: the messages to it and from it, whatever carries them.

A call is one message to the worker, and gives messages: completions, then one with the result or the error. Every
message carries the number of its call. Only what goes to the worker is pickled: what comes from it runs no code here.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate import EngineStats, Generator, Request, Watch, add_stats
from podsrl.lib.channel import Frame
from podsrl.records import decode_completions
from podsrl.scale.generators.weights import Table
from podsrl.scale.generators.worker import Blueprint, packed
from podsrl.sync.in_process import SyncError
from podsrl.types import Completion


class RemoteGenerator(Generator):
    """What all of them share; how a message is carried is a kind's own.

    Its abilities are "beside" and those of the worker's generator that travel: "join", "start", "abort_rollouts",
    "watch" and "proof". A watch is one of parts that have names (`Steering`): the worker makes it anew. The first call
    waits until the worker is made.

    Args:
        name: for messages.

    Raises:
        LostGenerator: by any call: the worker has ended or does not answer.
        UsageError: by any call: as of `Worker`.
    """

    version = 0

    def __init__(self, name: str) -> None:
        self.stats, self.peak_kv_bytes = EngineStats(), 0
        self._name, self._is_open = name, False
        self._number = 0  # of the newest call; 0: the start
        self._facts: dict[str, Any] | None = None

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

    def take(self, table: Table, data: Any) -> None:
        """Sample from weights from now on that lie where the worker can read them: `data` says where.

        Raises:
            SyncError: others than these have arrived.
        """
        digest = self._call({"call": "load_weights", "table": table}, data=data)
        if digest != table["digest"]:
            raise SyncError(f"{self._name} holds the weights {digest}, wanted {table['digest']}")
        self.version = table["version"]

    def describe(self, requests: Sequence[Request]) -> str:
        return str(self._call({"call": "describe"}, list(requests)))

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        token, logprob = self._call({"call": "first_logprob", "prompt_ids": list(prompt_ids)})
        return token, logprob

    def _send(self, head: dict[str, Any], body: bytes = b"", data: Any = None) -> None:
        """Send a message; `data` says where weights are."""
        raise NotImplementedError

    def _received(self) -> Frame:
        """Wait for the next message."""
        raise NotImplementedError

    def _start(self, blueprint: Blueprint) -> None:
        with suppress(LostGenerator):  # the first call says so
            self._send({"call": "start", "podsrl": version("podsrl"), "number": 0}, pickle.dumps(blueprint))

    def _ready(self) -> dict[str, Any]:
        """Wait until the worker is made; returns its facts."""
        if self._facts is None:
            self._facts = self._answer().head["result"]
        return self._facts

    def _stream(self, wanted: list[Request], watch: bytes) -> Iterator[Completion | None]:
        self._begin({"call": "generate"}, (wanted, watch))
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

    def _call(self, head: dict[str, Any], asked: Any = None, data: Any = None) -> Any:
        self._begin(head, asked, data)
        return self._answer().head["result"]

    def _begin(self, head: dict[str, Any], asked: Any = None, data: Any = None) -> None:
        self._ready()
        if self._is_open:
            raise UsageError("a call of generate is open; finish or close it first")
        self._number += 1
        self._send(head | {"number": self._number}, pickle.dumps(asked), data)

    def _answer(self) -> Frame:
        """The next message of the newest call; those of a call that was left before its end are dropped."""
        while (frame := self._received()).head["number"] != self._number:
            pass
        if (error := frame.head.get("error")) is not None:
            self._is_open = False
            raise (UsageError if frame.head["is_usage"] else PodsError)(error)
        return frame
