"""One completion being made: what the engine knows of it, whatever state it is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from podsrl.generate.request import Request
from podsrl.generate.schedule.job import Job
from podsrl.generate.shelf import Kept
from podsrl.types import Completion, FinishReason

State = Literal["pending", "live", "paused", "ended"]
Key = tuple[str, int]
"""(request id, rollout index)."""


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
