"""What is under way: rollouts that the generator has, or an environment.

Whoever wants rollouts of open groups begins a `Work`, and reads what ends. All works share the generator: whichever is
read, each rollout of all of them goes on as soon as it can, whatever its siblings do.

    submitted ──▶ its turn has ended ──▶ asked what is said to it ──▶ submitted again, behind that
                          └──▶ ended, and read
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace

from podsrl.errors import PodsError
from podsrl.generate import Checked, Generator, Kind, Request, Sampling, Watch, abilities_of
from podsrl.lib.watch import Key
from podsrl.run.step.opens import requests_of
from podsrl.run.step.turns import Silence, Talk
from podsrl.types import Open, Rollout, Task

_SECONDS = 0.01
"""Longest wait for a generator elsewhere while an environment may answer."""


class UnderWay:
    """All works that share a generator.

    Args:
        generator: may be replaced while nothing is under way.
        kind, num_words: as of `Checked`.
    """

    def __init__(self, generator: Generator, *, kind: Kind, num_words: int) -> None:
        self._kind, self._num_words = kind, num_words
        self._works: dict[Work, None] = {}
        self._work_of: dict[str, Work] = {}  # by the group's id
        self.generator = generator

    @property
    def generator(self) -> Generator:
        return self._generator

    @generator.setter
    def generator(self, generator: Generator) -> None:
        self._generator = generator
        self.verbs = Checked(generator, kind=self._kind, num_words=self._num_words)

    @property
    def is_idle(self) -> bool:
        """Whether the generator has nothing to do."""
        return self.verbs.num_unfinished == 0

    def step(self) -> None:
        """Let go on who was answered; then draw a token for each rollout that runs, or wait for the next event."""
        for work in self._works:
            work.go_on()
        talking = [work.talk for work in self._works if work.talk.num_waiting]
        if not self.is_idle:
            self._read(_SECONDS if talking else None)
        elif talking:
            talking[0].wait(_SECONDS)
        elif any(work.is_generated for work in self._works):
            raise PodsError(f"{self._kind.option} was given up with rollouts under way")

    def submit(self, work: Work, requests: Sequence[Request]) -> None:
        """For a work, which reads what comes of them."""
        self.verbs.submit(requests, work.watch)
        self._works[work] = None
        self._work_of |= {request.id: work for request in requests}

    def drop(self, work: Work) -> None:
        """End what is left of a work that nobody reads any more."""
        self._end(work, lambda: work.is_generated)
        self.forget(work)

    def drop_all(self) -> None:
        """End all works."""
        self._end(None, lambda: not self.is_idle)
        self._works, self._work_of = {}, {}

    def forget(self, work: Work, names: Set[str] | None = None) -> None:
        """Nothing of a work is under way; or nothing of these groups."""
        if names is None:
            self._works.pop(work, None)
        self._work_of = {
            name: own for name, own in self._work_of.items() if own is not work or (names and name not in names)
        }

    def _end(self, work: Work | None, is_left: Callable[[], bool]) -> None:
        try:
            if is_left():
                self.verbs.abort([name for name, own in self._work_of.items() if work in (None, own)])
            while is_left() and not self.is_idle:
                self._read(None)
        except PodsError:
            self.generator = self._generator  # it is lost, or not to be trusted: nothing of it is waited for

    def _read(self, seconds: float | None) -> None:
        for done in self.verbs.poll(seconds):
            self._work_of[done.group_id].take(done)


class Work:
    """Rollouts of some groups that are under way. It iterates over them as they end, until none is left.

    To read raises what `Checked.poll` raises.

    Args:
        under_way: the others.
        sampling: how the rollouts are drawn.
        prompt_ids: of a task.
        watch: sees the rollouts while they are generated.
        talk: what is said to those whose turn has ended.
    """

    def __init__(
        self,
        under_way: UnderWay,
        sampling: Sampling,
        prompt_ids: Callable[[Task], tuple[int, ...]],
        *,
        watch: Watch | None = None,
        talk: Talk | None = None,
    ) -> None:
        self._under_way, self._sampling, self._prompt_ids = under_way, sampling, prompt_ids
        self.watch, self.talk = watch, talk or Silence()
        self._begun: set[Key] = set()  # and not read
        self._running: set[Key] = set()  # of those, what the generator has
        self._request_of: dict[Key, Request] = {}  # also of those that have ended
        self._ended: deque[Rollout] = deque()
        self._first_ended: dict[str, int] = {}
        self._is_put_off = False
        self.forks: dict[str, dict[int, int]] = {}
        """Group's id -> index of each fork that came -> index of the rollout that it forked from."""

    def add(self, opens: Sequence[Open]) -> None:
        """Begin what open groups lack and is not under way. With the ability "beside" it is generated from now on."""
        wanted = list[Request]()
        for each in opens:
            self.talk.know(each.group)
            lacking = [index for index in each.to_come if (each.group.id, index) not in self._begun]
            wanted += requests_of(each, lacking, self._prompt_ids(each.group.task), self._sampling)
        self._begun |= {(request.id, index) for request in wanted for index in request.indices}
        self._submit(wanted)

    def __iter__(self) -> Iterator[Rollout]:
        return self

    def __next__(self) -> Rollout:
        while not self._ended:
            if not self.is_generated and not self.talk.num_waiting:
                self._under_way.forget(self)
                raise StopIteration
            self._under_way.step()
        return self._read()

    @property
    def has_ended(self) -> bool:
        """Whether the next one has ended already, so that nobody waits for it."""
        return len(self._ended) > 0

    @property
    def is_generated(self) -> bool:
        """Whether the generator has rollouts of it; also forks that it does not know of."""
        return len(self._running) > 0 or (self.watch is not None and not self._under_way.is_idle)

    def ended(self) -> list[Rollout]:
        """Those that have ended, without waiting."""
        return [self._read() for _ in range(len(self._ended))]

    def end(self, name: str, first: int) -> None:
        """A group needs no rollout from this index on: those that run are ended, the others never start.

        A generator without the ability "abort_rollouts" generates their turns to the end all the same.
        """
        self._first_ended[name] = first
        if "abort_rollouts" in abilities_of(self._under_way.generator):
            self._under_way.verbs.abort([key for key in self._running if key[0] == name and key[1] >= first])

    def put_off(self) -> None:
        """Stop all: what runs comes open, with its tokens; what has drawn none does not come."""
        self._is_put_off = True
        if self._running:
            self._under_way.verbs.abort({name for name, _ in self._running})

    def release(self, names: Set[str]) -> None:
        """Nobody asks of these groups any more."""
        self._request_of = {key: request for key, request in self._request_of.items() if key[0] not in names}
        self._under_way.forget(self, names)

    # --- what the generator and the environment say ---

    def take(self, done: Rollout) -> None:
        """The generator has ended a rollout, or a turn of it."""
        key = done.group_id, done.index
        if key not in self._request_of:
            assert done.parent is not None, "checked"
            self.forks.setdefault(done.group_id, {})[done.index] = done.parent.index
        self._running.discard(key)
        if done.is_open and self._is_put_off:
            if done.num_drawn:
                self._ended.append(done)
            else:
                self._begun.discard(key)
        elif self._is_closed_before(done) or not self.talk.takes(done):
            self._end(done)

    def go_on(self) -> None:
        """Submit again what was answered."""
        if not self.talk.num_waiting:
            return
        going_on = list[Request]()
        for done in self.talk.answers(is_idle=self._under_way.is_idle):
            if done.is_open and self._is_put_off:
                self._ended.append(done)
            elif not done.is_open or self._is_closed_before(done):
                self._end(done)
            else:
                going_on.append(self._behind(done))
        self._submit(going_on)

    def _read(self) -> Rollout:
        done = self._ended.popleft()
        self._begun.discard((done.group_id, done.index))
        return done

    def _is_closed_before(self, done: Rollout) -> bool:
        """Whether an open rollout belongs to its group no more."""
        return done.is_open and done.index >= self._first_ended.get(done.group_id, math.inf)

    def _end(self, done: Rollout) -> None:
        if self._is_closed_before(done):
            done = replace(done, status="failed", invalid_reason="its group was closed before it ended")
        self.talk.over(done)
        self._ended.append(done)

    def _submit(self, requests: Sequence[Request]) -> None:
        if requests:
            self._under_way.submit(self, requests)
            self._request_of |= (own := {(each.id, index): each for each in requests for index in each.indices})
            self._running |= own.keys()

    def _behind(self, done: Rollout) -> Request:
        """What goes on behind the tokens of a rollout."""
        name, index = done.group_id, done.index
        while (name, index) not in self._request_of:
            index = self.forks[name][index]
        first = self._request_of[name, index]
        return replace(first, num_rollouts=1, first_index=done.index, starts={done.index: done})
