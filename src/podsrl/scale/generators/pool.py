"""A generator made of several. It gives the completions that one of them would give, each as soon as it is finished.

Member i of R gets every R-th request from the i-th on; a request stays whole. Tokens depend on the seed and the request
alone, so they are the same for every R. One that is lost is made anew with the newest weights and asked for its whole
share again; completions that had arrived are passed over by (request id, index).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from operator import methodcaller
from queue import SimpleQueue
from typing import Protocol, TypeVar

from torch import Tensor

from podsrl.control import Steering
from podsrl.errors import LostGenerator, PodsError, UnavailableError, UsageError
from podsrl.generate import EngineStats, Generator, Request, Watch, abilities_of, add_stats, begin
from podsrl.scale.generators.worker import packed
from podsrl.types import Completion

T = TypeVar("T")

MAX_LOSSES = 3
"""Losses of one member in one call after which the run ends."""
MAX_PAUSE_SECONDS = 5.0
"""Between two tries to make a lost member anew."""
MAX_GAP = 0.25
"""Largest difference of members' log-probs under the same weights, natural logs: what bfloat16 may round."""
_TRAVELS = frozenset({"join", "start", "abort_rollouts", "watch", "proof"})
"""Abilities that a pool has where all members have them."""

Found = tuple[int, Completion | BaseException | None]
"""Member, and what came from it: a completion, an error, or None at the end of its share."""


class Store(Protocol):
    """The newest weights, where every member can be given them at any time."""

    def put(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Keep these weights instead of those before. Each tensor is only valid until the next is asked for."""

    def give(self, member: Generator) -> None:
        """Let a member sample from the weights that were put last. LostGenerator: it cannot be reached."""

    def close(self) -> None:
        """Let go of the weights."""


class Copies:
    """A store in this process's memory, for members that take weights by `Generator.load_weights`."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._version = 0

    def put(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        self._tensors, self._version = {}, version
        for name, tensor in named_tensors:
            self._tensors[name] = tensor.detach().to("cpu", copy=True)

    def give(self, member: Generator) -> None:
        member.load_weights(self._tensors.items(), self._version)

    def close(self) -> None:
        self._tensors = {}


class Pool(Generator):
    """R generators as one.

    Args:
        factories: R functions that make a member each; called again for a member that is lost. A factory should not
            wait, so that all members start at the same time. Members bound their own waits, and their `abort` may be
            called while another thread reads their completions.
        store: of the weights; None: `Copies`.
        what: all members in words, for the start line: "2 servers".

    Raises:
        UsageError: no factory.

    Example:
        >>> pool = Pool([new_member] * 2, what="2 generators on this machine")  # doctest: +SKIP
    """

    version = 0

    def __init__(
        self,
        factories: Sequence[Callable[[], Generator]],
        store: Store | None = None,
        *,
        what: str = "several generators",
    ) -> None:
        if not factories:
            raise UsageError("a pool of no generators: wanted at least one")
        self._factories, self._store, self._what = tuple(factories), store or Copies(), what
        self._has_weights = self._is_open = self._is_closed = False
        self._aborted: list[str | tuple[str, int]] = []  # in the open call, for a member that is asked again
        self._watch: Watch | None = None  # likewise
        self._members: list[Generator] = []
        try:
            for make in self._factories:
                self._members.append(make())
        except BaseException:
            self.close()
            raise

    @property
    def abilities(self) -> frozenset[str]:  # type: ignore[override]
        """Those that all members have and that travel, and "beside"."""
        return _TRAVELS.intersection(*self._answers([abilities_of] * len(self._members))) | {"beside"}

    @property
    def stats(self) -> EngineStats:
        """The members' counts: the largest of `steps`, sums of the others. Set it to set them all."""
        return add_stats((member.stats for member in self._members), largest=("steps",))

    @stats.setter
    def stats(self, stats: EngineStats) -> None:
        for member in self._members:
            member.stats = replace(stats)

    @property
    def peak_kv_bytes(self) -> int:
        """Of the member that held most."""
        return max(member.peak_kv_bytes for member in self._members)

    @peak_kv_bytes.setter
    def peak_kv_bytes(self, count: int) -> None:
        for member in self._members:
            member.peak_kv_bytes = count

    def generate(self, requests: Iterable[Request], *, watch: Watch | None = None) -> Iterator[Completion]:
        """Begin now, and yield every completion as it comes, in any order.

        A consumer that stops early ends the call's rollouts without completions.

        Args:
            requests: what is wanted.
            watch: a `Steering`. Members watch their own shares with its parts as they are now, whatever they learn
                later: one that is lost is asked the same again.

        Raises:
            UsageError: another call is open, a member does not take a request, or the watch is another.
            LostGenerator: a member was lost `MAX_LOSSES` times, or cannot be made anew.
        """
        self._watch = None if watch is None else Steering.unpack(packed(watch))
        stream = self._stream(list(requests))
        next(stream)  # up to where the members have their requests
        return stream  # type: ignore[return-value]

    def abort(self, ids: Iterable[str | tuple[str, int]]) -> None:
        wanted = list(ids)
        self._aborted += wanted
        for member in self._members:
            with suppress(LostGenerator):  # whoever reads its completions makes it anew
                member.abort(wanted)

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Give all members these weights; the tensors are read once.

        Raises:
            UsageError: a call of `generate` is open.
            LostGenerator: a member was lost `MAX_LOSSES` times, or cannot be made anew.
            PodsError: a member holds other weights than it was given.
        """
        if self._is_open:
            raise UsageError("load_weights: a call of generate is open; finish or close it first")
        self._store.put(named_tensors, version)
        self.version, self._has_weights = version, True
        with ThreadPoolExecutor(len(self._members)) as threads:
            lost = list(threads.map(self._lost_at_weights, self._members))
        for i, error in enumerate(lost):
            if error is not None:
                self._replace(i, error, Counter())

    def describe(self, requests: Sequence[Request]) -> str:
        num = len(self._members)
        shares = [list(requests[i::num]) for i in range(num) if requests[i::num]]
        lines = dict.fromkeys(self._answers([methodcaller("describe", share) for share in shares]))
        return f"{self._what}: {next(iter(lines), 'nothing to generate')}"

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        """Of the first member. PodsError: another one's differs by more than `MAX_GAP`: it has other weights."""
        found: list[tuple[int, float]] = self._answers([methodcaller("first_logprob", prompt_ids)] * len(self._members))
        logprobs = [logprob for _, logprob in found]
        if not all(abs(logprob - logprobs[0]) <= MAX_GAP for logprob in logprobs):  # also where one is no number
            raise PodsError(
                f"{self._what} do not hold the same weights: their log-probs of the likeliest token after "
                f"{list(prompt_ids)} are {', '.join(f'{logprob:.4g}' for logprob in logprobs)}"
            )
        return found[0]

    def close(self) -> None:
        """End all members, also during a call, whose other completions do not come then."""
        self._is_closed = True
        for member in self._members:
            member.close()
        self._store.close()

    def _stream(self, wanted: list[Request]) -> Iterator[Completion | None]:
        if self._is_open:
            raise UsageError("generate: another call is open; finish or close it")
        num = len(self._members)
        shares = {i: wanted[i::num] for i in range(num) if wanted[i::num]}
        inbox: SimpleQueue[Found] = SimpleQueue()
        running, arrived, losses = set[int](), set[tuple[str, int]](), Counter[int]()
        self._is_open, self._aborted = True, []
        try:
            for i, share in shares.items():
                self._ask(i, share, inbox, losses)
                running.add(i)
            yield None
            while running:
                i, found = inbox.get()
                if isinstance(found, Completion):
                    if (key := (found.request_id, found.index)) not in arrived:
                        arrived.add(key)
                        yield found
                    continue
                running.discard(i)
                if isinstance(found, LostGenerator):
                    self._replace(i, found, losses)
                    self._ask(i, shares[i], inbox, losses)
                    running.add(i)
                elif found is not None:
                    raise found
        finally:
            if not self._is_closed:
                self._end({i: shares[i] for i in running}, inbox)
            self._is_open = False

    def _ask(self, i: int, share: list[Request], inbox: SimpleQueue[Found], losses: Counter[int]) -> None:
        """Give a member its share, and let a thread read what comes."""
        while True:
            try:
                stream = begin(self._members[i], share, self._watch)
                if self._aborted:
                    self._members[i].abort(self._aborted)
                break
            except LostGenerator as error:
                self._replace(i, error, losses)
        threading.Thread(target=_read, args=(i, stream, inbox), daemon=True, name=f"generator-{i}").start()

    def _end(self, running: dict[int, list[Request]], inbox: SimpleQueue[Found]) -> None:
        """Let members end what nobody wants any more."""
        for i, share in running.items():
            with suppress(LostGenerator):
                self._members[i].abort([request.id for request in share])
        while running:
            i, found = inbox.get()
            if not isinstance(found, Completion):
                running.pop(i)

    def _answers(self, calls: Sequence[Callable[[Generator], T]]) -> list[T]:
        """What members answer, the first one to the first call and so on; one that is lost is made anew and asked."""
        losses, found = Counter[int](), list[T]()
        while len(found) < len(calls):
            i = len(found)
            try:
                found.append(calls[i](self._members[i]))
            except LostGenerator as error:
                self._replace(i, error, losses)
        return found

    def _lost_at_weights(self, member: Generator) -> LostGenerator | None:
        try:
            self._store.give(member)
        except LostGenerator as error:
            return error
        return None

    def _replace(self, i: int, error: LostGenerator, losses: Counter[int]) -> None:
        """A new member in place of a lost one, with its counts and the newest weights.

        It is made in the caller's thread: a child process ends with the thread that started it.

        Raises:
            LostGenerator: the member's own error, where there is nothing to make another of; or the last of
                `MAX_LOSSES`.
        """
        while True:
            losses[i] += 1
            if error.is_final:
                raise error
            if losses[i] == MAX_LOSSES:
                raise LostGenerator(f"{MAX_LOSSES} times in one call a generator was lost, the last time: {error}")
            old = self._members[i]
            old.close()
            new = self._members[i] = self._made_anew(i, error)
            new.stats, new.peak_kv_bytes = old.stats, old.peak_kv_bytes
            if not self._has_weights:
                return
            lost = self._lost_at_weights(new)
            if lost is None:
                return
            error = lost

    def _made_anew(self, i: int, error: LostGenerator) -> Generator:
        """Try for as long as the lost one may be away, such as a server that somebody starts again."""
        deadline, pause = time.monotonic() + error.retry_seconds, 0.1
        while True:
            try:
                return self._factories[i]()
            except UnavailableError:
                if self._is_closed or time.monotonic() + pause > deadline:
                    raise error from None
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)


def _read(i: int, stream: Iterator[Completion], inbox: SimpleQueue[Found]) -> None:
    try:
        for completion in stream:
            inbox.put((i, completion))
        inbox.put((i, None))
    except BaseException as error:
        inbox.put((i, error))
