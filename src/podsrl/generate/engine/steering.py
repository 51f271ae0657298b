"""What a caller sees of a step: the view that hooks get, the counts, and the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from podsrl.generate.base import EngineStats
from podsrl.generate.engine.sequence import Key, Sequence


@dataclass(frozen=True, slots=True)
class StepView:
    """The running rollouts between forward and draw: B rollouts on R <= B rows, since the same tokens share a row.

    Example: the entropy of every rollout's next token is `view.entropies[view.row_of]`.
    """

    keys: list[Key]
    """B pairs (request id, rollout index)."""
    num_tokens: list[int]
    """B counts: the new tokens that each rollout has made so far."""
    row_of: Tensor
    """[B] int64: the row of each rollout."""
    logits: Tensor
    """[R, V] of the next token, before temperature and filters."""
    hidden: Tensor
    """[R, D] the model's last hidden state of the newest token."""

    @property
    def logprobs(self) -> Tensor:
        """[R, V] float32 log-probabilities of the next token at temperature 1, without filters."""
        return torch.log_softmax(self.logits.float(), dim=-1)

    @property
    def entropies(self) -> Tensor:
        """[R] float32 entropy of the next token, in nats."""
        entropies: Tensor = torch.special.entr(self.logprobs.exp()).sum(dim=-1)
        return entropies


Hook = Callable[[StepView], None]


@dataclass(slots=True)
class Span:
    """One stay of a rollout in the batch: it drew a token in each of the steps start .. end - 1."""

    request_id: str
    index: int
    start: int
    end: int


@dataclass(slots=True)
class Log:
    """The engine's counts and, if wanted, the trace of all stays in the batch."""

    stats: EngineStats = field(default_factory=EngineStats)
    trace: list[Span] | None = None
    _spans: dict[Sequence, Span] = field(default_factory=dict)

    def enter(self, sequences: Iterable[Sequence]) -> None:
        """Sequences join the batch."""
        if self.trace is None:
            return
        for sequence in sequences:
            span = Span(sequence.request.id, sequence.index, self.stats.steps, self.stats.steps)
            self._spans[sequence] = span
            self.trace.append(span)

    def leave(self, sequences: Iterable[Sequence]) -> None:
        """Sequences leave the batch."""
        for sequence in sequences:
            if sequence in self._spans:
                self._spans.pop(sequence).end = self.stats.steps
