"""Levels: questions get harder as the policy solves them, and easier where it does not.

The training set says how hard its questions are: a column "level" of each, a whole number, the smaller the easier. A
column "dataset" parts it into kinds, each of which has its own level. A step's questions are drawn from the level at
which each kind stands; how many of which kind, the data stream says.

A kind goes up where its last `window` groups at that level were answered right with a mean share of at least `up`, and
down at `down` or less; then it counts anew. There is nothing above its highest and below its lowest level.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from podsrl.control.base import View
from podsrl.control.candidates import first
from podsrl.errors import UsageError, short
from podsrl.types import Group, Task

LEVEL, KIND = "level", "dataset"
"""Columns of a task."""
Blocks = Mapping[str, Mapping[int, NDArray[np.int64]]]
Share = Annotated[float, Field(ge=0, le=1)]


class Levels:
    """Asks questions of the level that the policy has come to: solved levels lead up, others down.

    Args:
        up: mean share of right answers from which a kind of question goes up a level.
        down: share up to which it goes down.
        window: groups at a level, the last ones, that decide.
        start: place of the level to begin with among those that a kind has: 0 is the easiest.
    """

    def __init__(
        self,
        *,
        up: Share = 0.7,
        down: Share = 0.1,
        window: Annotated[int, Field(ge=1)] = 16,
        start: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        if down >= up:
            raise UsageError(f"options.levels.down = {down:g}; wanted less than options.levels.up = {up:g}")
        self._up, self._down, self._window, self._start = up, down, window, start
        self._known: dict[str, list[int]] = {}  # kind -> the levels that it has, ascending
        self._places: dict[str, int] = {}  # kind -> place among them
        self._shares: dict[str, list[float]] = {}
        self._blocks: tuple[Sequence[Task], Blocks] = ((), {})

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """UsageError: a level is no whole number, or no kind of question has several."""
        if tasks and max(map(len, self._blocks_of(tasks).values())) < 2:
            raise UsageError(
                "systems = 'levels': the questions have no column 'level' with several values; wanted, for example, "
                "task.name = 'steps', or 'reasoning_gym' with options.reasoning_gym.difficulty = [0, 1, 2]"
            )

    def questions(self, view: View, count: int) -> Sequence[int]:
        """Random ones of each kind's level; those first that the step has not asked."""
        blocks, found = self._blocks_of(view.tasks), list[int]()
        kinds = Counter(kind_and_level(view.tasks[index])[0] for index in view.stream.draw(count))
        for kind, number in sorted(kinds.items()):
            candidates = blocks[kind][self.level(kind)]
            found += first(view, candidates, view.rng(f"levels/{kind}").random(len(candidates)), number)
        return found

    def level(self, kind: str) -> int:
        """The level at which a kind of question stands."""
        return self._known[kind][self._place(kind)]

    def learn(self, groups: Sequence[Group]) -> None:
        """Count the groups of each kind's level, in their order, and move it."""
        for group in groups:
            kind, level = kind_and_level(group.task)
            if kind in self._known and level == self.level(kind) and (own := group.outcomes):
                self._count(kind, sum(own) / len(own))

    def metrics(self) -> dict[str, float]:
        """The level of each kind."""
        return {f"level/{kind}": self.level(kind) for kind in self._known}

    def state(self) -> dict[str, Any]:
        """Of each kind that was counted its place and shares; also of one that is asked no more."""
        places = {kind: self._places.get(kind, self._start) for kind in self._shares}
        return {kind: {"place": places[kind], "shares": list(shares)} for kind, shares in self._shares.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._places = {kind: int(own["place"]) for kind, own in state.items()}
        self._shares = {kind: list(own["shares"]) for kind, own in state.items()}

    def _place(self, kind: str) -> int:
        return min(self._places.get(kind, self._start), len(self._known[kind]) - 1)

    def _count(self, kind: str, share: float) -> None:
        shares = [*self._shares.get(kind, ()), share][-self._window :]
        mean = math.fsum(shares) / len(shares)
        place = self._place(kind) + (1 if mean >= self._up else -1 if mean <= self._down else 0)
        if len(shares) == self._window and place != self._place(kind) and 0 <= place < len(self._known[kind]):
            self._places[kind], shares = place, []
        self._shares[kind] = shares

    def _blocks_of(self, tasks: Sequence[Task]) -> Blocks:
        if self._blocks[0] is not tasks:
            self._blocks = tasks, blocks_of(tasks)
            self._known = {kind: sorted(levels) for kind, levels in self._blocks[1].items()}
        return self._blocks[1]


def kind_and_level(task: Task) -> tuple[str, int]:
    """Of a question: "all" without the column "dataset", and 0 without "level". UsageError: a level is no whole number.

    Example:
        >>> kind_and_level(Task(id="a", prompt="?", answer="", columns={"level": 2}))
        ('all', 2)
    """
    level = task.columns.get(LEVEL, 0)
    if type(level) is not int:
        raise UsageError(f"systems = 'levels': task {task.id!r} has the level {short(level)}; wanted a whole number")
    return str(task.columns.get(KIND, "all")), level


def blocks_of(tasks: Sequence[Task]) -> Blocks:
    """Kind -> level -> places of its questions, ascending."""
    blocks: dict[str, dict[int, list[int]]] = {}
    for place in range(len(tasks)):
        kind, level = kind_and_level(tasks[place])
        blocks.setdefault(kind, {}).setdefault(level, []).append(place)
    return {kind: {level: np.array(own) for level, own in levels.items()} for kind, levels in sorted(blocks.items())}
