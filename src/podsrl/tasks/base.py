"""The seam of the task stage: a named set of questions split in two, and the order in which training meets them.

Goes in: nothing. Comes out: `TaskSet`, what every loader returns, and `task_indices`, an endless data stream without
state: a resumed run needs only the position it had reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from podsrl.errors import UsageError
from podsrl.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """Questions to train on and questions held out.

    Raises:
        UsageError: nothing is held out.

    Example:
        >>> seven, three = Task(id="a", prompt="3+4=", answer="7"), Task(id="b", prompt="1+2=", answer="3")
        >>> len(TaskSet(name="sums", train=[seven], eval=(three,)).train)
        1
    """

    name: str
    """What messages and reports call the set."""
    train: Sequence[Task]
    """Questions for training. May make its tasks on demand: only `len` and indexing are used. Empty: the set is for
    evaluation only."""
    eval: tuple[Task, ...]
    """Held-out questions, never trained on."""
    rewards: Mapping[str, float] = field(default_factory=lambda: {"correct": 1.0, "format": 0.1})
    """What `task.rewards` is, unless the config says otherwise."""
    correct: str = "correct"
    """What `task.correct` is, unless the config says otherwise."""
    format: str | None = "format"
    """What `task.format` is, unless the config says otherwise."""
    chat: bool = False
    """Text prompts are asked as a chat message, unless `task.chat` says otherwise."""
    notes: tuple[str, ...] = ()
    """What a person should know about the data, one sentence each without a full stop."""

    def __post_init__(self) -> None:
        if not self.eval:
            raise UsageError(f"task set '{self.name}' has no eval tasks; wanted at least 1: give it more data")


def task_indices(num_train: int, *, seed: int, start: int, count: int) -> list[int]:
    """Give positions `start` .. `start + count - 1` of an endless stream over the training tasks.

    Each run of `num_train` positions (an epoch) is a fresh random permutation of 0 .. num_train - 1, drawn from PCG64
    seeded with [seed, epoch]. The result depends on the arguments alone; the last two permutations are kept, so that
    most calls only copy `count` numbers.

    Args:
        num_train: training tasks, at least 1.
        seed: of the stream, at least 0.
        start: first position, at least 0.
        count: how many positions, at least 0.

    Returns:
        `count` indices into `TaskSet.train`. A slice that crosses the end of an epoch may hold an index twice.

    Raises:
        UsageError: an argument is out of range.

    Example:
        >>> stream = task_indices(3, seed=0, start=0, count=6)
        >>> sorted(stream[:3]), sorted(stream[3:]), stream[2:5] == task_indices(3, seed=0, start=2, count=3)
        ([0, 1, 2], [0, 1, 2], True)
    """
    for option, value, least in (
        ("num_train", num_train, 1),
        ("seed", seed, 0),
        ("start", start, 0),
        ("count", count, 0),
    ):
        if value < least:
            raise UsageError(f"{option} = {value}; wanted at least {least}")
    indices: list[int] = []
    while len(indices) < count:
        epoch, offset = divmod(start + len(indices), num_train)
        indices += _permutation(num_train, seed, epoch)[offset : offset + count - len(indices)].tolist()
    return indices


# Two, because a step at the end of an epoch also reads the beginning of the next.
@lru_cache(maxsize=2)
def _permutation(num_train: int, seed: int, epoch: int) -> NDArray[np.int64]:
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    permutation = generator.permutation(num_train)
    permutation.flags.writeable = False
    return permutation
