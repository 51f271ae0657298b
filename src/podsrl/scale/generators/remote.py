"""A generator whose worker lives elsewhere: the messages to it and from it, whatever carries them.

Every message to it has a number. Some have an answer, which has the same number; the others, and what ends, are heard
by the next `poll`. Only what goes to the worker is pickled: what comes from it runs no code here.
"""

from __future__ import annotations

import pickle
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate import EngineStats, Generator, Request, Watch, add_stats
from podsrl.lib.channel import Frame
from podsrl.lib.child import Lost
from podsrl.lib.watch import Key
from podsrl.records import decode_rollouts
from podsrl.scale.generators.weights import Table
from podsrl.scale.generators.worker import Blueprint, check_load, check_submit, packed
from podsrl.sync.in_process import SyncError
from podsrl.types import Rollout

Receive = Callable[[float], Frame]
"""Wait for the next message, at most so many seconds. TimeoutError: none came; Lost: none will."""


class RemoteGenerator(Generator):
    """What all of them share; how a message is carried is a kind's own.

    Its abilities are "beside" and those of the worker's generator. A watch is one of parts that have names
    (`Steering`), as they are when nothing runs: the worker makes it anew. Its verbs are called by one thread at a time.

    Args:
        name: for messages.
        blueprint: of the worker, which is made meanwhile.
        receive: must not hold this generator: a thread that nobody ends calls it.
        timeout_seconds: of every wait for a message; see `LostGenerator`.

    Raises:
        LostGenerator: by any call: the worker has ended, or sends nothing while something is unfinished or asked.
        UsageError: by any call: as of `Worker`; by `poll`: as of the generator's `submit`.
    """

    version = 0

    def __init__(self, name: str, blueprint: Blueprint, receive: Receive, timeout_seconds: float) -> None:
        self.stats, self.peak_kv_bytes, self.num_unfinished = EngineStats(), 0, 0
        self.on_event: Callable[[], None] = lambda: None
        """Called by another thread whenever `poll` has something new."""
        self._name, self._timeout_seconds = name, timeout_seconds
        self._watch: Watch | None = None
        self._number = 0  # of the newest message; 0: the start
        self._submits: dict[int, set[Key]] = {}  # those that no frame has counted yet -> their rollouts
        self._keys: set[Key] = set()  # of all that was submitted and has not been given
        self._heard = threading.Condition()  # what follows belongs to two threads
        self._frames: deque[Frame] = deque()  # for `poll`
        self._answers: dict[int, dict[str, Any] | None] = {0: None}  # number -> answer; None: it is due
        self._is_busy, self._last_submit, self._since = False, 0, time.monotonic()
        self._loss: PodsError | None = None
        self._reader = threading.Thread(target=_read, args=(weakref.ref(self), receive), daemon=True, name=name)
        self._reader.start()
        with suppress(LostGenerator):  # the first call says so
            head = {"call": "start", "podsrl": version("podsrl"), "number": 0}
            self._sent(head, pickle.dumps((blueprint,)))

    @property
    def abilities(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"beside", *self._answer(0)["abilities"]})

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        wanted = list(requests)
        keys = check_submit(wanted, self._keys, watch, self._watch)
        data = None if watch is None else b"" if self.num_unfinished else packed(watch)
        number = self._ask("submit", wanted, data)
        self._watch, self._submits[number] = watch, keys
        self._keys |= keys
        self.num_unfinished += len(keys)

    def poll(self, seconds: float | None = None) -> list[Rollout]:
        found = list[Rollout]()
        with self._heard:
            self._heard.wait_for(lambda: self._frames or self._loss or not self.num_unfinished, seconds)
            while self._frames and not (found and "error" in self._frames[0].head):
                found += self._given(self._frames.popleft())
            if not found and self.num_unfinished and self._loss is not None:
                self.num_unfinished, self._keys, self._submits = 0, set(), {}
                raise self._loss
        return found

    def abort(self, ids: Iterable[str | Key]) -> None:
        self._ask("abort", list(ids))

    def take(self, table: Table, data: Any) -> None:
        """Sample from weights from now on that lie where the worker can read them: `data` says where.

        Raises:
            UsageError: rollouts are unfinished, and the generator lacks the ability "load".
            SyncError: others than these have arrived.
        """
        check_load(self)
        digest = self._result("load_weights", table=table, data=data)
        if digest != table["digest"]:
            raise SyncError(f"{self._name} holds the weights {digest}, wanted {table['digest']}")
        self.version = table["version"]

    def describe(self, requests: Sequence[Request]) -> str:
        return str(self._result("describe", list(requests)))

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        token, logprob = self._result("first_logprob", list(prompt_ids))
        return token, logprob

    def _send(self, head: dict[str, Any], body: bytes, data: Any) -> None:
        """Send a message; `data` says where weights are. Lost: it does not arrive."""
        raise NotImplementedError

    def _lost(self, reason: str) -> LostGenerator:
        """What to raise; nothing of the worker runs afterwards. An empty reason: it was silent for too long."""
        raise NotImplementedError

    # --- by the caller ---

    def _result(self, call: str, *asked: Any, **more: Any) -> Any:
        number = self._ask(call, *asked, **more)
        try:
            return self._answer(number)
        finally:
            with self._heard:
                del self._answers[number]

    def _ask(self, call: str, *asked: Any, data: Any = None, **more: Any) -> int:
        with self._heard:
            self.patience()  # which begins now, where nothing was awaited
            self._number += 1
            if call == "submit":
                self._is_busy, self._last_submit = True, self._number
            elif call != "abort":
                self._answers[self._number] = None
        self._sent({"call": call, "number": self._number, **more}, pickle.dumps(asked), data)
        return self._number

    def _sent(self, head: dict[str, Any], body: bytes, data: Any = None) -> None:
        try:
            if self._loss is None:
                return self._send(head, body, data)
        except Lost as error:
            self.end(str(error))
        assert self._loss is not None
        raise self._loss

    def _answer(self, number: int) -> Any:
        """Wait for it, and give its result."""
        with self._heard:
            self._heard.wait_for(lambda: self._loss is not None or self._answers[number] is not None)
            if (head := self._answers[number]) is not None:
                if "error" in head:
                    raise _error(head)
                return head["result"]
            assert self._loss is not None
            raise self._loss

    def _given(self, frame: Frame) -> list[Rollout]:
        """Count what is left after a frame, and give what has ended."""
        head = frame.head
        refused = self._submits.get(head.get("number", 0), set())
        self._submits = {number: keys for number, keys in self._submits.items() if number > head["counted"]}
        self.num_unfinished = head["unfinished"] + sum(map(len, self._submits.values()))
        if "error" in head:
            self._keys -= refused if head["unfinished"] else self._keys.difference(*self._submits.values())
            raise _error(head)
        self.stats = add_stats([self.stats, EngineStats(**head["stats"])])
        self.peak_kv_bytes = max(self.peak_kv_bytes, head["peak_kv_bytes"])
        found = decode_rollouts(frame.body)
        self._keys.difference_update((done.group_id, done.index) for done in found)
        return found

    # --- by the thread that reads ---

    def patience(self) -> float:
        """Seconds for which nothing may come from now on; while nothing is awaited, they begin now."""
        with self._heard:
            now = time.monotonic()
            if not self._is_busy and None not in self._answers.values():
                self._since = now
            return self._since + self._timeout_seconds - now

    def hear(self, frame: Frame) -> None:
        """Keep a message for whom it is."""
        head = frame.head
        with self._heard:
            self._since = time.monotonic()
            if "unfinished" in head:
                self._frames.append(frame)
                self._is_busy = head["unfinished"] > 0 or head["counted"] < self._last_submit
            elif head["number"] in self._answers:  # somebody waits for it
                self._answers[head["number"]] = head
                if head["number"] == 0 and "error" in head:
                    self._loss = _error(head)
            self._heard.notify_all()
        self.on_event()

    def end(self, reason: str) -> None:
        """Nothing comes any more."""
        with self._heard:
            self._loss = self._loss or self._lost(reason)
            self._heard.notify_all()
        self.on_event()


def _read(of: weakref.ref[RemoteGenerator], receive: Receive) -> None:
    """Let a generator hear what comes, for as long as somebody has it."""
    while (generator := of()) is not None:
        seconds = generator.patience()
        if seconds <= 0:
            return generator.end("")
        del generator
        frame, reason = None, ""
        try:
            frame = receive(seconds)
        except TimeoutError:
            continue
        except Lost as error:
            reason = str(error)
        if (generator := of()) is None:
            return
        if frame is None:
            return generator.end(reason)
        generator.hear(frame)
        del generator


def _error(head: dict[str, Any]) -> PodsError:
    return (UsageError if head["is_usage"] else PodsError)(head["error"])
