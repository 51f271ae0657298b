"""What a caller sees of the steps: the counts, and the trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from podsrl.generate.base import EngineStats
from podsrl.generate.engine.sequence import Sequence


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
