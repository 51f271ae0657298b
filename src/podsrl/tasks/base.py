"""The seam of the task stage: `TaskSet`, a named set of questions split in two, which every loader returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import SupportsIndex, overload

from podsrl.errors import UsageError
from podsrl.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """Questions to train on and questions held out. UsageError: nothing is held out.

    Example:
        >>> seven, three = Task(id="a", prompt="3+4=", answer="7"), Task(id="b", prompt="1+2=", answer="3")
        >>> len(TaskSet(name="sums", train=[seven], eval=(three,)).train)
        1
    """

    name: str
    """The name of the set in messages and reports."""
    train: Sequence[Task]
    """Questions for training. The sequence may make tasks on demand: only `len` and indexing are used. Empty: the set
    is for evaluation only."""
    eval: tuple[Task, ...]
    """Held-out questions, never trained on."""
    rewards: Mapping[str, float] = field(default_factory=lambda: {"correct": 1.0, "format": 0.1})
    """Default of `task.rewards`."""
    correct: str = "correct"
    """Default of `task.correct`."""
    format: str | None = "format"
    """Default of `task.format`, where it is among the rewards."""
    environment: str | None = None
    """Default of `task.environment`."""
    chat: bool = False
    """Default of `task.chat`: text prompts are sent as a chat message."""
    notes: tuple[str, ...] = ()
    """What a user should know about the data, one sentence each, without a full stop."""

    def __post_init__(self) -> None:
        if not self.eval:
            raise UsageError(f"task set '{self.name}' has no eval tasks; wanted at least 1: give it more data")


class TasksOnDemand(Sequence[Task]):
    """Tasks that are made each time they are read, from their places: large sets take no memory."""

    def __init__(self, places: range, make: Callable[[int], Task]) -> None:
        self._places, self._make = places, make

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return TasksOnDemand(self._places[index], self._make)
        return self._make(self._places[index])
