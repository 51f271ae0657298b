"""Two zones of rows, long ones first, so that attention over the short ones reads no padding up to the longest row.

Rows of different lengths lie in one tensor, and a batched product reads all of them up to the longest. Cut in two,
each part reads up to its own longest. All rows grow by one token per step, so an order remains good for a while: rows
change places only every few steps.

Example: rows of lengths 9, 3, 8, 3, 3, 3 read 6 * 9 = 54 tokens; with the second and third exchanged and cut after two
rows they read 2 * 9 + 4 * 3 = 30.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Zone = tuple[int, int]
"""(number of rows, longest length): zones follow one another from row 0."""

_STEPS = 16
"""Steps between two plans: a plan costs about one row copy for every three rows."""
_WORTHWHILE = 0.85
"""A cut is made only where it reads at most this share of what the uncut rows read: two products cost more than one."""


class Zones:
    """Remembers where the rows of a batch are cut.

    Example:
        >>> zones = Zones()
        >>> lengths = np.array([9, 3, 8, 3, 3, 3])
        >>> zones.plan(lengths)
        (array([2]), array([1]))
        >>> zones.at(np.array([9, 8, 3, 3, 3, 3]))
        ((2, 9), (4, 3))
    """

    def __init__(self) -> None:
        self._cut = 0
        self._steps_left = 0

    def plan(self, lengths: Ints) -> tuple[Ints, Ints]:
        """Rows first [K] and second [K] that change places before the next step, often none. Call it once per step."""
        self._steps_left -= 1
        if self._steps_left > 0:
            return _NONE, _NONE
        self._steps_left = _STEPS
        num_long = _num_long(lengths)
        self._cut = num_long
        if num_long == 0:
            return _NONE, _NONE
        is_long = np.zeros(len(lengths), bool)
        is_long[np.argsort(-lengths, kind="stable")[:num_long]] = True
        return np.flatnonzero(is_long[num_long:]) + num_long, np.flatnonzero(~is_long[:num_long])

    def at(self, lengths: Ints) -> tuple[Zone, ...]:
        """The zones of these rows [R], as the decode step takes them: right for any lengths, planned or not."""
        cut = self._cut
        if not 0 < cut < len(lengths):
            return ((len(lengths), int(lengths.max())),)
        return (cut, int(lengths[:cut].max())), (len(lengths) - cut, int(lengths[cut:].max()))


def _num_long(lengths: Ints) -> int:
    """How many of the longest rows make the front zone; 0: a cut is not worth it."""
    ordered = np.sort(lengths)
    num_short = np.arange(1, len(ordered))
    tokens_read = num_short * ordered[:-1] + (len(ordered) - num_short) * ordered[-1]
    if len(ordered) < 2 or tokens_read.min() > _WORTHWHILE * len(ordered) * ordered[-1]:
        return 0
    return len(ordered) - int(num_short[tokens_read.argmin()])


_NONE = np.empty(0, np.int64)
