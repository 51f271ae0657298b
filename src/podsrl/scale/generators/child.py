"""Where a worker lives: what answers a `RemoteGenerator`, as an actor of Ray or over the channel of a child process."""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from queue import Empty, SimpleQueue
from typing import Any

from podsrl.errors import PodsError, UsageError, one_line
from podsrl.lib.channel import Channel
from podsrl.lib.imports import load
from podsrl.lib.user_function import reason_of
from podsrl.records import encode_rollouts
from podsrl.scale.generators.weights import mapped
from podsrl.scale.generators.worker import Worker

_UNANSWERED = ("submit", "abort", "poll")


class Service:
    """A worker, which the first message makes, and what it is asked for."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[tuple[dict[str, Any], bytes, Any]] = SimpleQueue()
        self._worker: Worker | None = None
        self._counted = 0  # number of the newest submit

    def put(self, head: dict[str, Any], body: bytes = b"", data: Any = None) -> None:
        """A message, from any thread; `data` is weights."""
        self._messages.put((head, body, data))

    def answers(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Do what messages say, one after the other; while there is none, draw a token of every rollout that runs.

        Yields:
            The result of a message under its number; what has ended in a step, with "unfinished": the rollouts that
            are left, and "counted": the number of the last submit among them; or an error in one line. An error that is
            none of the user's own is printed with its traceback.
        """
        while True:
            try:
                message = self._messages.get(block=self._worker is None or not self._worker.num_unfinished)
            except Empty:
                message = {"call": "poll", "number": 0}, b"", None
            if message[0]["call"] == "close":
                break
            if (found := self._answer(*message)) is not None:
                yield found
            if self._worker is None:
                return
            del message  # weights
        if self._worker is not None:
            self._worker.close()

    def _answer(self, head: dict[str, Any], body: bytes, data: Any) -> tuple[dict[str, Any], bytes] | None:
        call, number, worker = head["call"], head["number"], self._worker
        try:
            if call == "start" and (here := version("podsrl")) != head["podsrl"]:
                raise UsageError(f"scale.ray: a node has podsrl {here}, wanted {head['podsrl']} as the run has")
            asked = pickle.loads(body) if body else ()
            if worker is None:
                worker = self._worker = Worker(*asked)
                return {"number": number, "result": worker.facts()}, b""
            if call == "poll":
                found = worker.poll()
                if found or not worker.num_unfinished:
                    return self._state() | worker.counts(), encode_rollouts(found)
                return None
            if call == "submit":
                self._counted = number
            more = (head["table"], data) if call == "load_weights" else ()
            result = getattr(worker, call)(*asked, *more)
            return None if call in _UNANSWERED else ({"number": number, "result": result}, b"")
        except Exception as error:
            is_own = isinstance(error, PodsError)
            if not is_own:
                traceback.print_exception(error)
            text = one_line(str(error) if is_own else f"generator process {os.getpid()}: {reason_of(error)}")
            state = self._state() if call in _UNANSWERED else {}
            return {"number": number, "error": text, "is_usage": isinstance(error, UsageError), **state}, b""

    def _state(self) -> dict[str, Any]:
        assert self._worker is not None
        return {"unfinished": self._worker.num_unfinished, "counted": self._counted}


def serve(channel: Channel) -> None:
    """In the child of a `ProcessGenerator`: answer until the other end is closed.

    The main thread does what is asked, as some engines insist on; a second thread receives, and hears the end of the
    parent at any time.
    """
    load("transformers.modeling_utils")
    service = Service()
    threading.Thread(target=_hear, args=(channel, service), daemon=True).start()
    for head, body in service.answers():
        channel.send(head, body)


def _hear(channel: Channel, service: Service) -> None:
    """Receive until the parent has closed the channel, which ends the process, whatever it does just now."""
    with suppress(OSError):
        while (frame := channel.receive()) is not None:
            data = None
            if frame.descriptor is not None:
                data = mapped(frame.descriptor, frame.head["table"])
                os.close(frame.descriptor)
            service.put(frame.head, frame.body, data)
            del frame, data
    os._exit(0)
