"""One rollout being generated: its tokens so far, its state, and which weights drew which token.

    idle ────▶ waiting ──▶ running ──▶ ended
      ▲          │           │          ▲
      ├──────────┘           │          │
      ├──────────────────────┘          │
      └─────────────────────────────────┘

    idle      known to the engine alone: just submitted, or on the way to another state
    waiting   in the queue, until the scheduler admits it
    running   on a row of the batch: one token per step (a fork of a running sequence starts there)
    ended     finished or aborted; its completion is handed out with the next poll

A preempted sequence goes from running through idle to waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from podsrl.errors import UsageError
from podsrl.generate.base import Ending, Request, nothing_of
from podsrl.generate.engine.random_numbers import request_key, row_keys
from podsrl.generate.schedule.job import Job
from podsrl.lib.watch import Key
from podsrl.types import NO_NOTES, Notes, Parent, Rollout

State = Literal["idle", "waiting", "running", "ended"]
Ids = Iterable[str | Key]
"""Groups' ids, or (group's id, rollout index) pairs."""

_NEXT: Mapping[State, tuple[State, ...]] = {
    "idle": ("waiting", "running", "ended"),
    "waiting": ("idle", "running"),
    "running": ("idle", "ended"),
    "ended": (),
}


@dataclass(slots=True, eq=False)
class History:
    """Tokens made so far, with their log-probabilities: two arrays of T entries, never written into."""

    tokens: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.tokens)

    def first(self, num_tokens: int) -> History:
        """The same, of the first so many tokens alone."""
        return History(self.tokens[:num_tokens], self.logprobs[:num_tokens])

    def with_given(self, token: int) -> History:
        """The same with one more token, which was not drawn."""
        return History(np.append(self.tokens, np.int32(token)), np.append(self.logprobs, np.float32(0)))


HELD = "engine/held"
"""A note of rollouts that were held: the tokens that they had when a watch saw them."""
EMPTY = History(np.zeros(0, np.int32), np.zeros(0, np.float32))


@dataclass(slots=True, eq=False)
class Sequence:
    """A rollout from its submission to its end. Two sequences are equal only if they are the same object."""

    request: Request
    index: int
    job: Job
    """What the scheduler sees of it."""
    random_key: np.uint64
    state: State = "idle"
    """Changed by `move` alone."""
    history: History = EMPTY
    """Its tokens while it is not running; a running sequence's tokens are in the batch."""
    marks: list[tuple[int, int]] = field(default_factory=list)
    """(tokens made before, version): from there on the weights of that version draw its tokens. Before the first mark
    there are given tokens alone."""
    given: tuple[tuple[int, int], ...] = ()
    """As in `Rollout`; so are the next two."""
    notes: Notes = NO_NOTES
    parent: Parent | None = None
    start: Rollout | None = None
    """What there was of it."""
    num_shown: int = -1
    """Tokens that it had when a watch saw it last, or, at first, that a fork's source had."""

    @property
    def key(self) -> Key:
        return self.request.id, self.index

    @property
    def prefix(self) -> tuple[int, ...]:
        """Prompt and tokens, of a sequence that is not running."""
        return self.request.prompt_ids + tuple(self.history.tokens.tolist())

    def move(self, state: State) -> None:
        """Enter another state, one that follows this one."""
        assert state in _NEXT[self.state], f"{self.key} from {self.state} to {state}"
        self.state = state

    def mark(self, num_tokens: int, version: int) -> None:
        """Note that the weights of `version` draw the tokens after the first `num_tokens`."""
        if self.marks and self.marks[-1][0] == num_tokens:
            self.marks.pop()  # no token was drawn from those weights
        if not self.marks or self.marks[-1][1] != version:
            self.marks.append((num_tokens, version))

    def versions(self) -> tuple[int, ...]:
        """One version per token; empty where all tokens have the same.

        Example: marks (0, 4) and (3, 5) on a sequence of five tokens give (4, 4, 4, 5, 5).
        """
        num_tokens = len(self.history)
        marks = [(start, version) for start, version in self.marks if start < num_tokens]
        if len(marks) < 2:
            return ()
        bounds = pairwise([0, *(start for start, _ in marks[1:]), num_tokens])
        return tuple(v for (_, v), (start, end) in zip(marks, bounds, strict=True) for _ in range(start, end))

    def rollout(self, ending: Ending, version: int) -> Rollout:
        """The record handed out; `version` is for a sequence that made no token."""
        return replace(
            self.start or nothing_of(self.request, self.index),
            token_ids=tuple(self.history.tokens.tolist()),
            logprobs=tuple(self.history.logprobs.tolist()),
            version=self.marks[0][1] if self.marks else version,
            versions=self.versions(),
            given=self.given,
            notes=self.notes,
            parent=self.parent,
            **ending._asdict(),
        )

    def begin(self, start: Rollout) -> None:
        """Go on from there."""
        self.history = History(np.array(start.token_ids, np.int32), np.array(start.logprobs, np.float32))
        self.job.num_tokens, self.start = len(start.token_ids), replace(start, group_id=self.request.id)
        self.given, self.notes, self.parent = start.given, start.notes, start.parent
        if np.array_equal(start.notes.get(HELD, ()), [len(start.token_ids)]):  # it goes on from where it was held
            self.num_shown = len(start.token_ids)
        if start.num_drawn > 0:
            for place, version in enumerate(start.versions or (start.version,)):
                self.mark(place, version)

    def go_on(self, source: Sequence, history: History, token: int | None) -> None:
        """Go on from the history of another, and from a token that is set."""
        num_tokens = len(history)
        self.parent = Parent(source.index, num_tokens)
        self.marks = [mark for mark in source.marks if mark[0] < num_tokens]
        self.given = tuple((start, min(end, num_tokens)) for start, end in source.given if start < num_tokens)
        self.history, self.num_shown, self.notes = history, min(source.num_shown, num_tokens), source.notes
        if token is not None:
            self.history, self.given = history.with_given(token), (*self.given, (num_tokens, num_tokens + 1))
        self.job.num_tokens = len(self.history)


def new_sequences(request: Request, seed: int, first_order: int) -> list[Sequence]:
    """The request's rollouts; `first_order` is the first one's arrival number."""
    indices = request.indices
    keys = row_keys(np.full(len(indices), request_key(seed, request.id)), indices)
    length, limit = len(request.prompt_ids), request.sampling.max_new_tokens
    jobs = [Job(request.id, index, length, limit, order=first_order + i) for i, index in enumerate(indices)]
    sequences = [Sequence(request, job.index, job, key) for job, key in zip(jobs, keys, strict=True)]
    for index, start in request.starts.items():
        sequences[index - request.first_index].begin(start)
    return sequences


def find_sequences(groups: Mapping[str, Mapping[int, Sequence]], ids: Ids) -> list[Sequence]:
    """Sequences of these ids that have not ended, each once. UsageError: one bare id instead of a list."""
    if isinstance(ids, str) or (isinstance(ids, tuple) and len(ids) == 2 and isinstance(ids[1], int)):
        raise UsageError(f"ids = {ids!r}: wanted a list of groups' ids or of (group's id, index), also for one")
    found: dict[Sequence, None] = {}
    for wanted in ids:
        name, index = (wanted, None) if isinstance(wanted, str) else wanted
        group = groups.get(name, {})
        for sequence in group.values() if index is None else [group[index]] if index in group else []:
            if sequence.state != "ended":
                found[sequence] = None
    return list(found)
