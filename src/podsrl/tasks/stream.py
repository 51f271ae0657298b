"""The endless data stream: in which order training meets the tasks. A resumed run needs only the position it had."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from podsrl.errors import UsageError


class Stream:
    """A cursor over the data stream of `task_indices`; `position` tasks were drawn before.

    Example:
        >>> stream = Stream(5, seed=0)
        >>> stream.draw(3), stream.draw(4), stream.position
        ([2, 4, 3], [0, 1, 1, 4], 7)
        >>> Stream(5, seed=0, position=3).draw(4)
        [0, 1, 1, 4]
    """

    def __init__(self, num_tasks: int, seed: int, position: int = 0) -> None:
        _check(num_tasks=(num_tasks, 1), seed=(seed, 0), position=(position, 0))
        self.num_tasks = num_tasks
        self.seed = seed
        self.position = position
        """Tasks drawn so far; a checkpoint stores it."""

    def draw(self, count: int) -> list[int]:
        """The next `count` indices of tasks, at least 0; `position` moves behind them."""
        indices = task_indices(self.num_tasks, seed=self.seed, start=self.position, count=count)
        self.position += count
        return indices


def task_indices(num_train: int, *, seed: int, start: int, count: int) -> list[int]:
    """Positions `start` .. `start + count - 1` of an endless stream over the training tasks.

    Each run of `num_train` positions (an epoch) is a fresh random permutation of 0 .. num_train - 1, drawn from PCG64
    seeded with [seed, epoch]. The result depends on the arguments alone. The last two permutations are kept, so most
    calls only copy `count` numbers.

    UsageError: `num_train` below 1, or another argument below 0. A slice that crosses the end of an epoch may hold an
    index twice.

    Example:
        >>> stream = task_indices(3, seed=0, start=0, count=6)
        >>> sorted(stream[:3]), sorted(stream[3:]), stream[2:5] == task_indices(3, seed=0, start=2, count=3)
        ([0, 1, 2], [0, 1, 2], True)
    """
    _check(num_train=(num_train, 1), seed=(seed, 0), start=(start, 0), count=(count, 0))
    indices: list[int] = []
    while len(indices) < count:
        epoch, offset = divmod(start + len(indices), num_train)
        indices += _permutation(num_train, seed, epoch)[offset : offset + count - len(indices)].tolist()
    return indices


def _check(**values: tuple[int, int]) -> None:
    for option, (value, least) in values.items():
        if value < least:
            raise UsageError(f"{option} = {value}; wanted at least {least}")


# Two, because a step at the end of an epoch also reads the beginning of the next.
@lru_cache(maxsize=2)
def _permutation(num_train: int, seed: int, epoch: int) -> NDArray[np.int64]:
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    permutation = generator.permutation(num_train)
    permutation.flags.writeable = False
    return permutation
