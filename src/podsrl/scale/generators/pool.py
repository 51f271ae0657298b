"""A generator made of several. It gives the completions that one of them would give, each as soon as it is finished.

A request goes, whole, to the member with the fewest unfinished rollouts. Tokens depend on the seed and the request
alone, so they are the same for any number of members. One that is lost is made anew with the newest weights and asked
again for what it has not given; what comes twice is passed over by its key.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import methodcaller
from typing import Protocol, TypeVar

from torch import Tensor

from podsrl.control import Steering
from podsrl.errors import LostGenerator, PodsError, UnavailableError, UsageError
from podsrl.generate import EngineStats, Generator, Request, Watch, abilities_of, add_stats
from podsrl.lib.watch import Key
from podsrl.scale.generators.worker import check_load, check_submit, packed
from podsrl.types import Rollout

T = TypeVar("T")

MAX_LOSSES = 3
"""Losses of one member in a row, without a new completion of it in between, after which the run ends."""
MAX_PAUSE_SECONDS = 5.0
"""Between two tries to make a lost member anew."""
MAX_GAP = 0.25
"""Largest difference of members' log-probs under the same weights, natural logs: what bfloat16 may round."""


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


class _Member:
    """A generator of a pool, and what it was asked for."""

    def __init__(self, generator: Generator) -> None:
        self.generator, self.losses = generator, 0
        self.forget()

    def forget(self) -> None:
        """It has nothing to do."""
        self.asked: dict[Key, Request] = {}
        self.given, self.aborted = set[Key](), set[Key]()
        self.is_whole = False  # one in its place is asked for all since then, not only for what has not come

    @property
    def num_unfinished(self) -> int:
        return self.generator.num_unfinished if self.asked else 0

    @property
    def groups(self) -> set[str]:
        return {name for name, _ in self.asked}

    def keys_of(self, request: Request) -> list[Key]:
        """Its rollouts, without those that a later request has asked for."""
        keys = ((request.id, index) for index in request.indices)
        return [key for key in keys if self.asked.get(key) is request]

    def drop(self, keys: Collection[Key]) -> None:
        """They are whole, or asked for anew."""
        for key in keys:
            self.asked.pop(key, None)
        self.given.difference_update(keys)
        self.aborted.difference_update(keys)

    def is_new(self, done: Rollout) -> bool:
        """Whether a completion has not come before."""
        key = done.group_id, done.index
        is_new, request = key not in self.given, self.asked.get(key)
        self.given.add(key)
        if request is not None and not self.is_whole and self.given.issuperset(keys := self.keys_of(request)):
            self.drop(keys)
        if is_new:
            self.losses = 0
        return is_new

    def ask_again(self, watch: Watch | None) -> None:
        """Ask a new generator, in place of a lost one, for what that one owes. LostGenerator: it is lost too."""
        self.is_whole |= len(self.asked) > 0 and "join" not in abilities_of(self.generator)
        owed = [
            replace(request, first_index=run[0], num_rollouts=len(run), starts=_of(request.starts, run))
            for request in {id(request): request for request in self.asked.values()}.values()
            for run in _runs(key[1] for key in self.keys_of(request) if self.is_whole or key not in self.given)
        ]
        if owed:
            self.generator.submit(owed, watch=watch)
        if self.aborted:
            whole = self.groups - {name for name, _ in self.asked.keys() - self.aborted}
            self.generator.abort([*whole, *(key for key in self.aborted if key[0] not in whole)])


class Pool(Generator):
    """R generators as one.

    Members that work by themselves have an attribute `on_event`, which the pool sets to a function without arguments:
    they call it, from any thread, whenever `poll` has something new. The others work when the pool is polled.

    Its abilities are those that all members have. Members watch their own shares with the watch's parts as they are
    when nothing runs, whatever they learn later. Rollouts of a watched group that run at a time are with one member.

    Args:
        factories: R functions that make a member each; called again for a member that is lost. A factory should not
            wait, so that all members start at the same time. Members bound their own waits.
        store: of the weights; None: `Copies`.
        what: all members in words, for the start line: "2 servers".

    Raises:
        UsageError: no factory. By any verb: an error of a member, which ends all that runs.
        LostGenerator: by any verb: a member was lost `MAX_LOSSES` times in a row, or cannot be made anew.

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
        self._has_weights = self._is_closed = False
        self._bell = threading.Event()
        self._watch: Watch | None = None  # of what runs
        self._own_watch: Watch | None = None  # a copy of it, which learns nothing
        self._members: list[_Member] = []
        try:
            for i in range(len(self._factories)):
                self._members.append(_Member(self._made(i)))
        except BaseException:
            self.close()
            raise

    @property
    def abilities(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset.intersection(*self._answers([abilities_of] * len(self._members)))

    @property
    def num_unfinished(self) -> int:  # type: ignore[override]
        """Of all members; after a loss also those that come again, and are passed over."""
        return sum(member.num_unfinished for member in self._members)

    @property
    def stats(self) -> EngineStats:
        """The members' counts: the largest of `steps`, sums of the others. Set it to set them all."""
        return add_stats((member.generator.stats for member in self._members), largest=("steps",))

    @stats.setter
    def stats(self, stats: EngineStats) -> None:
        for member in self._members:
            member.generator.stats = replace(stats)

    @property
    def peak_kv_bytes(self) -> int:
        """Of the member that held most."""
        return max(member.generator.peak_kv_bytes for member in self._members)

    @peak_kv_bytes.setter
    def peak_kv_bytes(self, count: int) -> None:
        for member in self._members:
            member.generator.peak_kv_bytes = count

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        wanted = list(requests)
        running = {key for member in self._members for key in member.asked if key not in member.given}
        check_submit(wanted, running, watch, self._watch)
        if self._is_idle():
            self._watch, self._own_watch = watch, None if watch is None else Steering.unpack(packed(watch))
        shares: list[list[Request]] = [[] for _ in self._members]
        loads = [member.num_unfinished for member in self._members]
        watched = enumerate(self._members if watch is not None else ())
        homes = {name: i for i, member in watched for name in member.groups}
        for request in wanted:
            keys = [(request.id, index) for index in request.indices]
            for member in self._members:
                member.drop(keys)
                member.is_whole = member.is_whole or watch is not None  # nobody knows which forks have not come
            i = homes.get(request.id, loads.index(min(loads)))
            if watch is not None:
                homes[request.id] = i
            loads[i] += request.num_rollouts
            shares[i].append(request)
            self._members[i].asked.update(dict.fromkeys(keys, request))
        for i, share in enumerate(shares):
            if share:
                self._tell(i, methodcaller("submit", share, watch=self._own_watch))

    def poll(self, seconds: float | None = None) -> list[Rollout]:
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            self._bell.clear()
            found = [done for i in range(len(self._members)) for done in self._polled(i)]
            left = None if deadline is None else deadline - time.monotonic()
            waits = all(hasattr(member.generator, "on_event") for member in self._members)
            if found or not waits or self._is_idle() or (left is not None and left <= 0):
                return found
            self._bell.wait(left)

    def abort(self, ids: Iterable[str | Key]) -> None:
        wanted = set(ids)
        for i, member in enumerate(self._members):
            groups = member.groups
            if own := [each for each in wanted if (each if isinstance(each, str) else each[0]) in groups]:
                member.aborted |= {key for key in member.asked if key in wanted or key[0] in wanted}
                self._tell(i, methodcaller("abort", own))

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Give all members these weights; the tensors are read once.

        Raises:
            UsageError: rollouts are unfinished, and a member lacks the ability "load".
            LostGenerator: a member was lost `MAX_LOSSES` times in a row, or cannot be made anew.
            PodsError: a member holds other weights than it was given.
        """
        check_load(self)
        self._is_idle()
        self._store.put(named_tensors, version)
        self.version, self._has_weights = version, True
        with ThreadPoolExecutor(len(self._members)) as threads:
            given = [threads.submit(self._store.give, member.generator) for member in self._members]
        for i, each in enumerate(given):
            self._tell(i, lambda _, each=each: each.result())  # type: ignore[misc]

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
        """End all members, also while rollouts run, which do not come then."""
        self._is_closed = True
        for member in self._members:
            member.forget()
            member.generator.close()
        self._bell.set()
        self._store.close()

    def _is_idle(self) -> bool:
        """Whether nothing is unfinished; losses are counted anew from then on."""
        if self.num_unfinished:
            return False
        for member in self._members:
            member.forget()
            member.losses = 0
        return True

    def _polled(self, i: int) -> list[Rollout]:
        member = self._members[i]
        found = (self._tell(i, methodcaller("poll", 0)) or ()) if member.num_unfinished else ()
        new = [done for done in found if member.is_new(done)]
        if not member.num_unfinished:
            member.forget()
        return new

    def _tell(self, i: int, call: Callable[[Generator], T]) -> T | None:
        """Call a member; None where it was lost: the one in its place has been asked for all that it owes."""
        try:
            try:
                return call(self._members[i].generator)
            except LostGenerator as error:
                self._replace(i, error)
        except Exception:
            self._abandon()
            raise
        return None

    def _answers(self, calls: Sequence[Callable[[Generator], T]]) -> list[T]:
        """What members answer, the first one to the first call and so on; one that is lost is made anew and asked."""
        self._is_idle()
        found = list[T]()
        while len(found) < len(calls):
            if (answer := self._tell(len(found), calls[len(found)])) is not None:
                found.append(answer)
        return found

    def _abandon(self) -> None:
        """End all that runs without completions."""
        for member in self._members:
            with suppress(PodsError):
                if member.asked:
                    member.generator.abort(member.groups)
                while member.num_unfinished:
                    with suppress(UsageError):  # of another request
                        member.generator.poll()
            member.forget()

    def _replace(self, i: int, error: LostGenerator) -> None:
        """A new member in place of a lost one, with its counts and the newest weights, asked for what that one owes.

        It is made in the caller's thread: a child process ends with the thread that started it.

        Raises:
            LostGenerator: the member's own error, where there is nothing to make another of; or the last of
                `MAX_LOSSES`.
        """
        member = self._members[i]
        while True:
            member.losses += 1
            if error.is_final:
                raise error
            if member.losses == MAX_LOSSES:
                raise LostGenerator(f"{MAX_LOSSES} times in a row a generator was lost, the last time: {error}")
            old = member.generator
            old.close()
            member.generator = self._made_anew(i, error)
            member.generator.stats, member.generator.peak_kv_bytes = old.stats, old.peak_kv_bytes
            try:
                if self._has_weights:
                    self._store.give(member.generator)
                return member.ask_again(self._own_watch)
            except LostGenerator as again:
                error = again

    def _made(self, i: int) -> Generator:
        made = self._factories[i]()
        if hasattr(made, "on_event"):
            made.on_event = self._bell.set
        return made

    def _made_anew(self, i: int, error: LostGenerator) -> Generator:
        """Try for as long as the lost one may be away, such as a server that somebody starts again."""
        deadline, pause = time.monotonic() + error.retry_seconds, 0.1
        while True:
            try:
                return self._made(i)
            except UnavailableError:
                if self._is_closed or time.monotonic() + pause > deadline:
                    raise error from None
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)


def _runs(indices: Iterable[int]) -> list[list[int]]:
    """Neighbouring indices together."""
    runs = groupby(enumerate(indices), lambda each: each[1] - each[0])
    return [[index for _, index in run] for _, run in runs]


def _of(starts: Mapping[int, Rollout], indices: Sequence[int]) -> dict[int, Rollout]:
    return {index: starts[index] for index in indices if index in starts}
