"""The child process of a `ProcessGenerator`: a worker that answers over a channel.

The main thread does one call after the other, as some engines insist on; a second thread receives, so that `abort` is
heard during a call and the end of the parent at any time. Every answer carries the number of its call.
"""

from __future__ import annotations

import os
import threading
import traceback
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from podsrl.errors import PodsError, UsageError, one_line
from podsrl.lib.channel import Channel, Frame
from podsrl.lib.imports import load
from podsrl.lib.user_function import reason_of
from podsrl.scale.generators.weights import mapped
from podsrl.scale.generators.worker import Blueprint, Worker


def serve(channel: Channel) -> None:
    """Answer until the other end is closed."""
    load("transformers.modeling_utils")
    first = channel.receive()
    if first is None:
        return
    try:
        worker = Worker(Blueprint.of_json(first.body.decode()))
    except Exception as error:
        _report(channel, error, 0)
        return
    channel.send({"result": worker.facts(), "number": 0})
    calls: SimpleQueue[Frame] = SimpleQueue()
    threading.Thread(target=_hear, args=(channel, worker, calls), daemon=True).start()
    while (frame := calls.get()).head["call"] != "close":
        try:
            result = _do(channel, worker, frame)
        except Exception as error:
            _report(channel, error, frame.head["number"])
        else:
            channel.send({"result": result, "number": frame.head["number"]})
    worker.close()


def _hear(channel: Channel, worker: Worker, calls: SimpleQueue[Frame]) -> None:
    """Receive until the parent has closed the channel, which ends the process, whatever it does just now."""
    with suppress(OSError):
        while (frame := channel.receive()) is not None:
            if frame.head["call"] == "abort":
                worker.abort(frame.head["ids"], frame.head["number"])
            else:
                calls.put(frame)
    os._exit(0)


def _do(channel: Channel, worker: Worker, frame: Frame) -> Any:
    """The result of one call, as JSON; completions are sent on the way."""
    head = frame.head
    match head["call"]:
        case "generate":
            end = head["num_watch_bytes"]
            for completions in worker.generate(frame.body[end:], head["number"], frame.body[:end]):
                channel.send({"number": head["number"]}, completions)
            return worker.counts()
        case "load_weights":
            assert frame.descriptor is not None
            try:
                return worker.load_weights(head["table"], mapped(frame.descriptor, head["table"]))
            finally:
                os.close(frame.descriptor)
        case "describe":
            return worker.describe(frame.body)
        case "first_logprob":
            return worker.first_logprob(head["prompt_ids"])
    raise ValueError(f"no call {head['call']!r}")


def _report(channel: Channel, error: Exception, number: int) -> None:
    """Tell the parent in one line; what is no error of the user's own, with its traceback in the output."""
    if not isinstance(error, PodsError):
        traceback.print_exception(error)
    text = str(error) if isinstance(error, PodsError) else f"generator process {os.getpid()}: {reason_of(error)}"
    channel.send({"error": one_line(text), "is_usage": isinstance(error, UsageError), "number": number})
