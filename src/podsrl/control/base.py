"""The seam of the control stage: which questions a step asks, and how many rollouts each gets, in rounds.

A step asks its parts; the answers are generated and scored; the parts are asked again with the scored groups at hand,
until they ask for nothing. They decide at five moments (`podsrl.lib.moments`):

    enough     view -> how many new groups this round
    questions  view, count -> places of that many questions in the training set
    rollouts   view, asks -> asks: how many rollouts each gets, and which groups of the step get more
    guide      view, asks -> asks: which of them are shown with another prompt
    keep       view -> after the last round: ids of the groups that are trained on

One round asks `guide(view, rollouts(view, [Ask(index, n) for index in questions(view, enough(view))]))`.

A part writes nothing while it is asked: its answer is a function of its options, of what it has learned
(`learn(groups)`, once per step), and of the view. So a step that is asked again, after a resume or in another process,
asks the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from podsrl.config.schema import DEFAULT_COSTS, CostsConfig
from podsrl.lib.seeds import derive
from podsrl.types import Group, Task


class Stream(Protocol):
    """The run's endless stream of questions (`podsrl.tasks.stream.Stream`)."""

    position: int
    """Questions drawn so far in the run."""

    def draw(self, count: int) -> list[int]:
        """The next `count` places. A question that is drawn twice in a step gets two groups."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a part knows. It is the same on all processes of a run.

    Example: in round 1 of step 12 the groups of round 0 are there, with their rewards:

        [g.id for g in view.groups if not any(r.is_correct for r in g.rollouts)]
    """

    step: int
    """Steps done before this one."""
    round: int = 0
    """0 opens the step."""
    num_prompts: int
    """New groups that a step wants: `rollouts.num_prompts`, P; with `order.take = "first"` as many as there is
    room for beside the groups under way."""
    num_rollouts: int
    """`rollouts.num_rollouts`, n."""
    num_train: int
    """Questions in the training set; an index is 0 .. num_train - 1."""
    tasks: Sequence[Task] = ()
    """The training set."""
    seed: int
    """Of the run."""
    costs: CostsConfig = DEFAULT_COSTS["cpu"]
    """What the parts of a step cost, `[costs]`: constants of the config."""
    stream: Stream
    """What is drawn from it counts as used when the step ends."""
    groups: tuple[Group, ...] = ()
    """The step's groups so far, scored, in the order in which they were first asked; probes too."""
    waiting: tuple[Group, ...] = ()
    """Groups of earlier steps that wait, the oldest first, without those that are among `groups`. Where a part
    has `wait`, the asks of a step may join them."""

    def rng(self, name: str) -> np.random.Generator:
        """Random numbers of the part `name` in this round: a function of (seed, name, step, round) alone.

        A part that draws from it needs no saved state. A second call begins the same numbers again.
        """
        return np.random.default_rng([derive(self.seed, f"control/{name}", self.step), self.round])

    def after(self, groups: Sequence[Group]) -> View:
        """The view of the next round.

        Args:
            groups: new ones, and grown ones in place of those with the same id.
        """
        latest = {group.id: group for group in (*self.groups, *groups)}
        waiting = tuple(group for group in self.waiting if group.id not in latest)
        return replace(self, round=self.round + 1, groups=tuple(latest.values()), waiting=waiting)


Close = Callable[[View, Group], bool]
"""Whether a group has enough. It holds the rollouts that have ended so far, in the order of their indices; some may be
missing. What is enough has to stay enough when more come in between, so the answer tells what nobody needs."""
