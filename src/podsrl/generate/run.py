"""One completion being made: what the engine knows of it, whatever state it is in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from podsrl.errors import UsageError
from podsrl.generate.random import request_key, row_keys
from podsrl.generate.request import Request
from podsrl.generate.schedule.job import Job
from podsrl.generate.shelf import Kept
from podsrl.types import Completion, FinishReason

State = Literal["pending", "live", "paused", "ended"]
Key = tuple[str, int]
"""(request id, rollout index)."""
Ids = Iterable[str | Key]
"""Request ids, or (request id, rollout index) pairs."""


@dataclass(slots=True, eq=False)
class History:
    """Tokens made so far, with both log-probabilities: three arrays of T entries."""

    tokens: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    raw_logprobs: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.tokens)

    def shortened(self) -> History:
        """Without the last token."""
        return History(self.tokens[:-1], self.logprobs[:-1], self.raw_logprobs[:-1])


EMPTY = History(np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.float32))
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
    version: int | None = None
    """Of the weights that made its first token."""

    @property
    def key(self) -> Key:
        return self.request.id, self.index

    @property
    def prefix(self) -> tuple[int, ...]:
        """Prompt and tokens, of a run that is not live."""
        return self.request.prompt_ids + tuple(self.history.tokens.tolist())

    def completion(self, reason: FinishReason, version: int) -> Completion:
        """The record handed out; `version` is for a run that made no token."""
        logprobs = tuple(self.history.logprobs.tolist())
        raw = tuple(self.history.raw_logprobs.tolist())
        return Completion(
            request_id=self.request.id,
            index=self.index,
            token_ids=tuple(self.history.tokens.tolist()),
            logprobs=logprobs,
            raw_logprobs=logprobs if raw == logprobs else raw,
            finish_reason=reason,
            version=version if self.version is None else self.version,
        )


def new_runs(request: Request, seed: int, first_order: int) -> list[Run]:
    """The request's rollouts; `first_order` is the first one's arrival number."""
    num, sampling, length = request.num_rollouts, request.sampling, len(request.prompt_ids)
    keys = row_keys(np.full(num, request_key(seed, request.id)), range(num))
    jobs = [Job(request.id, i, length, sampling.max_new_tokens, order=first_order + i) for i in range(num)]
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
