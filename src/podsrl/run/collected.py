"""What a step has collected."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from podsrl.generate import EngineStats
from podsrl.types import Completion, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of one step."""

    seen: tuple[Group, ...]
    """All groups of the step, in the order in which they were first asked."""
    trained: Set[str]
    """Ids of those that the budget keeps, to train on."""
    postponed: tuple[Completion, ...]
    """What came back unfinished, of this process alone; it is in no group."""
    data_position: int
    """Where the data stream stands after them."""
    stats: EngineStats
    """Of all rounds, by this process alone."""
    peak_kv_bytes: int
    overlapped_seconds: float
    """From the begin of the generation of round 0 until the caller waited for it."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """To train on."""
        return tuple(group for group in self.seen if group.id in self.trained)

    @property
    def left_out(self) -> tuple[Group, ...]:
        """That the budget keeps out of the training."""
        return tuple(group for group in self.seen if group.is_trained and group.id not in self.trained)

    @property
    def probes(self) -> tuple[Group, ...]:
        """Only for the budget to look at."""
        return tuple(group for group in self.seen if not group.is_trained)
