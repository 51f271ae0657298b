"""Difficulty bins, of GDRO's two games (arXiv 2601.19280): how hard each question is for the model now.

That is pass@k of a question over a window of its last groups, cut into bins by edges. A question leaves its bin when
its pass@k is beyond an edge of the bin by the hysteresis, so that noise does not move it back and forth. What is ours:
pass@k of one group is the unbiased estimate of Chen et al. (2021, arXiv 2107.03374) from all its rollouts, because
groups differ in size; a question without a group is in no bin, where the released code calls it hardest.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field

from podsrl.errors import UsageError
from podsrl.types import Group

Edges: TypeAlias = tuple[float, ...]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Hysteresis: TypeAlias = Annotated[float, Field(ge=0, lt=0.5)]
EDGES = (0.4, 0.75)
"""The three bins of the released code; its other choice is (0.1, 0.2, 0.4, 0.6, 0.8, 0.9)."""


class DifficultyBins:
    """The bin of every question that was asked, 0 for the hardest.

    Args:
        where: the options' table, for messages: "options.gdro_rollouts".
        edges: ascending, between 0 and 1: B - 1 edges make B bins; a question on an edge is in the easier bin.
        k: of pass@k, at least 1; a group with fewer rollouts counts whether any is right.
        window: groups per question that count, the last ones; at least 1.
        hysteresis: how far beyond an edge of its bin a question must be to leave it; at least 0, under 0.5.

    Raises:
        UsageError: the edges are not ascending.

    Example:

        >>> bins = DifficultyBins("options.gdro_rollouts", edges=(0.4, 0.75), k=1, window=50, hysteresis=0.0)
        >>> bins.num_bins, bins.bin_of(7)
        (3, None)
    """

    def __init__(self, where: str, edges: Sequence[float], k: int, window: int, hysteresis: float) -> None:
        ascending = all(a < b for a, b in zip((0.0, *edges), (*edges, 1.0), strict=True))
        if not edges or not ascending:
            raise UsageError(f"{where}.edges = {list(edges)}; wanted at least one, ascending, between 0 and 1")
        self.edges, self.k, self.window, self.hysteresis = tuple(edges), k, window, hysteresis
        self._recent: dict[int, tuple[float, ...]] = {}
        self._bins: dict[int, int] = {}

    @property
    def num_bins(self) -> int:
        """B."""
        return len(self.edges) + 1

    def bin_of(self, index: int) -> int | None:
        """The bin of a question; None: it was not asked yet."""
        return self._bins.get(index)

    def bin_with(self, group: Group) -> int | None:
        """The bin of a group's question with the group counted; None: nothing is known of it."""
        if group.index is None:
            return None
        return self._bin(group.index, self._window_with(group, group.index))

    def learn(self, groups: Iterable[Group]) -> None:
        """Count the outcomes of each group; one without any does not count."""
        for group in groups:
            if group.index is not None and (recent := self._window_with(group, group.index)):
                found = self._bin(group.index, recent)
                assert found is not None, "there is a group in the window"
                self._recent[group.index], self._bins[group.index] = recent, found

    def state(self) -> dict[str, Any]:
        """Four arrays: per question its index, its bin and the length of its window; the windows one after another."""
        return {
            "question": np.array(list(self._recent), dtype=np.int64),
            "bin": np.array([self._bins[index] for index in self._recent], dtype=np.int64),
            "length": np.array([len(recent) for recent in self._recent.values()], dtype=np.int64),
            "pass_at_k": np.array(list(chain.from_iterable(self._recent.values())), dtype=np.float64),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        questions, ends = state["question"].tolist(), np.cumsum(state["length"])
        windows = np.split(state["pass_at_k"], ends[:-1]) if questions else []
        self._recent = {index: tuple(window.tolist()) for index, window in zip(questions, windows, strict=True)}
        self._bins = dict(zip(questions, state["bin"].tolist(), strict=True))

    def _window_with(self, group: Group, index: int) -> tuple[float, ...]:
        own, recent = group.outcomes, self._recent.get(index, ())
        if not own:
            return recent
        return (*recent, pass_at_k(len(own), sum(own), self.k))[-self.window :]

    def _bin(self, index: int, recent: Sequence[float]) -> int | None:
        if not recent:
            return None
        value, old = math.fsum(recent) / len(recent), self._bins.get(index)
        new = bisect_right(self.edges, value)
        if old is None or new == old:
            return new
        edge = self.edges[old] if new > old else self.edges[old - 1]
        return new if abs(value - edge) >= self.hysteresis else old


def pass_at_k(n: int, num_right: int, k: int) -> float:
    """The share of the draws of k of n rollouts that hold a right one; k is at most n, or counts as n.

    Example:
        >>> pass_at_k(8, 2, 1), pass_at_k(4, 1, 2), pass_at_k(2, 1, 8)
        (0.25, 0.5, 1.0)
    """
    k = min(k, n)
    return 1 - math.comb(n - num_right, k) / math.comb(n, k)
