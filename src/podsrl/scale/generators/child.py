"""Where a worker lives: what answers a `RemoteGenerator`, as an actor of Ray or over the channel of a child process."""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from queue import SimpleQueue
from typing import Any

from podsrl.errors import PodsError, UsageError, one_line
from podsrl.lib.channel import Channel, Frame
from podsrl.lib.imports import load
from podsrl.lib.user_function import reason_of
from podsrl.scale.generators.weights import mapped
from podsrl.scale.generators.worker import Worker


class Service:
    """A worker that the first call makes, and that answers one call after the other; `abort` is heard meanwhile."""

    def answers(
        self, head: dict[str, Any], body: bytes = b"", data: Any = None
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Give the messages of a call; the last one has its result, or its error in one line.

        An error that is none of the user's own is printed with its traceback.
        """
        number = head["number"]
        try:
            if head["call"] == "generate":
                requests, watch = pickle.loads(body)
                for completions in self._worker.generate(requests, number, watch):
                    yield {"number": number}, completions
            yield {"result": self._result(head, body, data), "number": number}, b""
        except Exception as error:
            is_own = isinstance(error, PodsError)
            if not is_own:
                traceback.print_exception(error)
            text = one_line(str(error) if is_own else f"generator process {os.getpid()}: {reason_of(error)}")
            yield {"error": text, "is_usage": isinstance(error, UsageError), "number": number}, b""

    def abort(self, ids: list[Any], number: int) -> None:
        """As `Worker.abort`."""
        self._worker.abort(ids, number)

    def close(self) -> None:
        self._worker.close()

    def _result(self, head: dict[str, Any], body: bytes, data: Any) -> Any:
        """The result of a call, as JSON."""
        match head["call"]:
            case "start":
                if (here := version("podsrl")) != head["podsrl"]:
                    raise UsageError(f"scale.ray: a node has podsrl {here}, wanted {head['podsrl']} as the run has")
                self._worker = Worker(pickle.loads(body))
                return self._worker.facts()
            case "generate":
                return self._worker.counts()
            case "load_weights":
                return self._worker.load_weights(head["table"], data)
            case "describe":
                return self._worker.describe(pickle.loads(body))
            case "first_logprob":
                return self._worker.first_logprob(head["prompt_ids"])
        raise ValueError(f"no call {head['call']!r}")


def serve(channel: Channel) -> None:
    """In the child of a `ProcessGenerator`: answer until the other end is closed.

    The main thread does one call after the other, as some engines insist on; a second thread receives, so that `abort`
    is heard during a call and the end of the parent at any time.
    """
    load("transformers.modeling_utils")
    service, calls = Service(), SimpleQueue[Frame]()
    frame = channel.receive()
    while frame is not None and frame.head["call"] != "close":
        mapping = None if frame.descriptor is None else mapped(frame.descriptor, frame.head["table"])
        for head, body in service.answers(frame.head, frame.body, mapping):
            channel.send(head, body)
        if frame.descriptor is not None:
            os.close(frame.descriptor)
        if frame.head["call"] == "start":
            if "error" in head:
                return
            threading.Thread(target=_hear, args=(channel, service, calls), daemon=True).start()
        frame = calls.get()
    service.close()


def _hear(channel: Channel, service: Service, calls: SimpleQueue[Frame]) -> None:
    """Receive until the parent has closed the channel, which ends the process, whatever it does just now."""
    with suppress(OSError):
        while (frame := channel.receive()) is not None:
            if frame.head["call"] == "abort":
                service.abort(frame.head["ids"], frame.head["number"])
            else:
                calls.put(frame)
    os._exit(0)
