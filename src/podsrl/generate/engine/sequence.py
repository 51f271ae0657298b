"""One completion being made: what the engine knows of it, whatever state it is in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from podsrl.errors import UsageError
from podsrl.generate.base import Request
from podsrl.generate.engine.prefix_cache import Kept
from podsrl.generate.engine.random_numbers import request_key, row_keys
from podsrl.generate.schedule.job import Job
from podsrl.types import Completion, FinishReason

State = Literal["pending", "live", "paused", "ended"]
Key = tuple[str, int]
"""(request id, rollout index)."""
Ids = Iterable[str | Key]
"""Request ids, or (request id, rollout index) pairs."""


@dataclass(slots=True, eq=False)
class History:
    """Tokens made so far, with their log-probabilities: two arrays of T entries."""

    tokens: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.tokens)

    def shortened(self) -> History:
        """Without the last token."""
        return History(self.tokens[:-1], self.logprobs[:-1])


EMPTY = History(np.zeros(0, np.int32), np.zeros(0, np.float32))
"""Of a run without tokens; histories are never written into."""


@dataclass(slots=True, eq=False)
class Run:
    """A rollout from its submission to its end."""

    request: Request
    index: int
    job: Job
    random_key: np.uint64
    state: State = "pending"
    history: History = EMPTY
    """Its tokens while it is not live; a live run's are in the batch."""
    kept: Kept | None = None
    """Its keys and values, where a pause kept them."""
    marks: list[tuple[int, int]] = field(default_factory=list)
    """(tokens made before, version): from there on the weights of that version draw its tokens."""

    @property
    def key(self) -> Key:
        return self.request.id, self.index

    @property
    def prefix(self) -> tuple[int, ...]:
        """Prompt and tokens, of a run that is not live."""
        return self.request.prompt_ids + tuple(self.history.tokens.tolist())

    def mark(self, num_tokens: int, version: int) -> None:
        """Note that the weights of `version` draw the tokens after the first `num_tokens`."""
        if self.marks and self.marks[-1][0] == num_tokens:
            self.marks.pop()  # no token was drawn from those weights
        if not self.marks or self.marks[-1][1] != version:
            self.marks.append((num_tokens, version))

    def versions(self) -> tuple[int, ...]:
        """One version per token; empty where all tokens have the same."""
        num_tokens = len(self.history)
        marks = [(start, version) for start, version in self.marks if start < num_tokens]
        if len(marks) < 2:
            return ()
        ends = [*(start for start, _ in marks[1:]), num_tokens]
        return tuple(v for (start, v), end in zip(marks, ends, strict=True) for _ in range(start, end))

    def completion(self, reason: FinishReason, version: int) -> Completion:
        """The record handed out; `version` is for a run that made no token."""
        return Completion(
            request_id=self.request.id,
            index=self.index,
            token_ids=tuple(self.history.tokens.tolist()),
            logprobs=tuple(self.history.logprobs.tolist()),
            finish_reason=reason,
            version=self.marks[0][1] if self.marks else version,
            versions=self.versions(),
        )


def new_runs(request: Request, seed: int, first_order: int) -> list[Run]:
    """The request's rollouts; `first_order` is the first one's arrival number."""
    indices, stream = request.indices, request.random_stream
    keys = row_keys(np.full(len(indices), request_key(seed, stream)), indices)
    length, limit = len(request.prompt_ids), request.sampling.max_new_tokens
    jobs = [Job(stream, index, length, limit, order=first_order + i) for i, index in enumerate(indices)]
    return [Run(request, job.index, job, key) for job, key in zip(jobs, keys, strict=True)]


def find_runs(runs_by_request: Mapping[str, Sequence[Run]], ids: Ids) -> list[Run]:
    """Runs of these ids that have not ended, each once.

    Raises:
        UsageError: one bare id instead of a list.
    """
    if isinstance(ids, str) or (isinstance(ids, tuple) and len(ids) == 2 and isinstance(ids[1], int)):
        raise UsageError(f"ids = {ids!r}: wanted a list of request ids or of (request id, index), also for one")
    found: dict[Run, None] = {}
    for wanted in ids:
        request_id, index = (wanted, None) if isinstance(wanted, str) else wanted
        for run in runs_by_request.get(request_id, ()):
            if run.state != "ended" and index in (None, run.index):
                found[run] = None
    return list(found)
