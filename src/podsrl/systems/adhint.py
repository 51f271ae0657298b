"""ADHint (arXiv 2512.13095): answers that begin with a part of a solution, the longer the harder a question is.

**Hints** (`Hints`). The first round asks half of each question's rollouts plainly. D is the share of wrong ones among
the valid ones of them; 0 without any, since nothing then says that the question is hard. The second round asks the
other half, whose answers begin with the share

    w = (most - least) · D + least + noise        within 0 and most; noise is uniform within ± `noise`

of a worked solution's tokens. A question whose w is 0 is asked plainly again.

SEELE (arXiv 2509.06923) chooses w otherwise (`by = "curve"`). In each further round it fits a curve of three parameters
to what was right in the rounds before, and begins the next answers with the share at which that curve is at `target`:

    p(w) = guess + (1 - guess) / (1 + exp(-slope · (w - centre)))        the likeliest of a grid, under a wide prior

**Advantages** (`Halves`). Plain and hinted rollouts of a group are no equals: each half has its own mean and standard
deviation (ddof 1, + 1e-4), and so has each length of hint where there are several. Then right plain answers count 1 + d
times, and so do wrong hinted ones, where d is what the hint raised the share of right answers by, -1 to 1, among the
kept rollouts: all of them in the recipe; a selection by rewards changes it.

The authors' code and the formulas of the paper's gradients within a hint and of its advantages were not found. What is
ours: d and its place; D from right and wrong, not from rewards; the values of `most` and `noise`; a hint leaves at
least one token of the solution unsaid. The paper also trains on hint tokens, damped by how far their entropy is from
that of the answer, and not at all where the answer is bad. Here no hint token has a loss. Of SEELE a third party's
account was read: the grid, its prior, the number of rounds and the comparison within equal hints are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.lib.parts import GO_ON
from podsrl.tasks.references import solution_reader
from podsrl.types import Ask, Group, Notes, Rollout, Selection, Task
from podsrl.update.advantage import group_advantages
from podsrl.update.shapes import rewrite_chunks

SHARE = "adhint"
"""Note of those whose answer begins with a hint, with "curve": its share, [1]."""
Share = Annotated[float, Field(ge=0, lt=1)]
CENTRES, SLOPES, GUESSES = np.linspace(-0.5, 1.5, 81), np.geomspace(2, 32, 9), np.array([0.0, 0.02, 0.05, 0.1, 0.2])
"""The curves that are tried."""
PRIOR = -2 * (CENTRES[:, None, None] - 0.5) ** 2 - np.log(SLOPES[:, None] / 8) ** 2 / 2 - GUESSES / 0.05
"""Logarithm of their weights, [81, 9, 5]: the centre is 1/2 ± 1/2, the slope 8 times or over e, the guess rare."""


class Hints:
    """Begins the answers of half of each question's rollouts with a part of a solution; it learns nothing.

    Args:
        solution: column with a worked solution of each question, or "module:function" of a task that makes it.
        most: share of its tokens where all plain answers are wrong; 0: no hints.
        least: share where all are right.
        noise: half the width of what is added to the share.
        by: "difficulty", ADHint's formula, or "curve", as above; that does not read `least`.
        rounds: of a question, which part its rollouts; the first is plain.
        target: share of right answers at which "curve" aims; above what is guessed.
    """

    def __init__(
        self,
        *,
        solution: str = "solution",
        most: Share = 0.8,
        least: Share = 0.0,
        noise: Share = 0.05,
        by: Literal["difficulty", "curve"] = "difficulty",
        rounds: Annotated[int, Field(ge=2, le=8)] = 2,
        target: Annotated[float, Field(gt=GUESSES[-1], lt=1)] = 0.5,
    ) -> None:
        if least > most:
            raise UsageError(f"options.adhint.least = {least}, options.adhint.most = {most}; wanted least <= most")
        self._read = solution_reader(solution, option="options.adhint.solution")
        self._most, self._least, self._noise = most, least, noise
        self.abilities = GO_ON if most else ()
        self._by, self._rounds, self._target = by, rounds, target

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """UsageError: a question has no solution."""
        for task in tasks if self._most else ():
            self._read(task)

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """As many as without. UsageError: a round of fewer than two rollouts has no mean to be compared with."""
        if self._most and num_rollouts < 2 * self._rounds:
            raise UsageError(
                f"systems = 'adhint' compares within each of options.adhint.rounds = {self._rounds} rounds, and "
                f"rollouts.num_rollouts = {num_rollouts}; wanted at least {2 * self._rounds}"
            )
        return num_prompts, num_rollouts

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The plain half of new questions, and the other half of those that have one."""
        if not self._most:
            return asks
        sizes = [len(part) for part in np.array_split(np.arange(view.num_rollouts), self._rounds)]
        plain = [replace(ask, num_rollouts=sizes[0]) for ask in asks]
        more_of = dict(zip(accumulate(sizes), sizes[1:], strict=False))
        waiting = [group for group in view.groups if group.is_trained and len(group.rollouts) in more_of]
        noise = self._noise * view.rng("hints").uniform(-1, 1, len(waiting))
        return [
            *plain,
            *(
                self._further(view, group, more_of[len(group.rollouts)], own)
                for group, own in zip(waiting, noise.tolist(), strict=True)
            ),
        ]

    def _further(self, view: View, group: Group, count: int, noise: float) -> Ask:
        if is_curve := self._by == "curve":
            valid = [(share_of(rollout), rollout.is_correct) for rollout in group.rollouts if rollout.is_valid]
            share = share_at(self._target, [(own, is_right) for own, is_right in valid if own is not None])
        else:
            right = fmean(group.outcomes or [True])
            share = (self._most - self._least) * (1 - right) + self._least
        share = min(max(share + noise, 0.0), self._most)
        more = Ask.of(group, count)
        found = begun(more, self._read(view.tasks[more.index]), share)
        return replace(found, notes=Notes({SHARE: [share]})) if is_curve and found.start else found


def share_of(rollout: Rollout) -> float | None:
    """The share of a solution that the answer began with; None: another part asked for what it began with."""
    if SHARE in rollout.notes:
        return float(rollout.notes[SHARE][0])
    return None if is_begun(rollout) else 0.0


def share_at(target: float, seen: Sequence[tuple[float, bool]]) -> float:
    """The share at which the likeliest curve is at the target; below 0 where even plain answers are above it.

    Args:
        target: above the largest of `GUESSES`, below 1.
        seen: share of a rollout's hint, and whether its answer was right.

    Example: three of three plain answers were wrong, and half of those with half of the solution.

        >>> round(share_at(0.5, [*[(0.0, False)] * 3, (0.5, True), (0.5, False)]), 3)
        0.5
    """
    likely = PRIOR
    for share in sorted({share for share, _ in seen}):
        right = [is_right for own, is_right in seen if own == share]
        steep = np.exp(-SLOPES[:, None] * (share - CENTRES[:, None, None]))
        chance = (1 + GUESSES * steep) / (1 + steep)
        miss = (1 - GUESSES) * steep / (1 + steep)
        likely = likely + sum(right) * np.log(chance) + (len(right) - sum(right)) * np.log(miss)
    centre, slope, guess = np.unravel_index(int(likely.argmax()), likely.shape)
    return float(CENTRES[centre] + np.log((target - GUESSES[guess]) / (1 - target)) / SLOPES[slope])


def begun(ask: Ask, solution: str, share: float) -> Ask:
    """The ask with that share of a solution as the beginning of its answers; as it is where the share is 0."""
    return replace(ask, start=solution, start_share=share, origin="hint") if share else ask


class Halves:
    """Advantages of plain and hinted rollouts apart, weighed by what the hint changed.

    Args:
        weighed: False leaves out 1 + d.
    """

    def __init__(self, *, weighed: bool = True) -> None:
        self._weighed = weighed

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages [m] of each group; those of groups without hints as they are."""
        return rewrite_chunks("adhint", self._apart, groups, selections, advantages)

    def _apart(self, rollouts: Sequence[Rollout], advantages: Tensor) -> Tensor:
        """[k] advantages that are linear in the rewards."""
        length = torch.tensor([rollout.given[0][1] if is_begun(rollout) else 0 for rollout in rollouts])
        is_hinted = length > 0
        is_right = torch.tensor([rollout.is_correct for rollout in rollouts])
        if not is_hinted.any():
            return advantages
        found = torch.zeros_like(advantages)
        for each in {*length.tolist()}:
            if (length == each).sum() > 1:
                found[length == each] = group_advantages(advantages[length == each])
        if not self._weighed:
            return found
        raised = (
            0.0
            if is_hinted.all()
            else float(is_right[is_hinted].double().mean() - is_right[~is_hinted].double().mean())
        )
        return torch.where(is_right != is_hinted, (1 + raised) * found, found)


def is_begun(rollout: Rollout) -> bool:
    """Whether its answer begins with given tokens."""
    return any(start == 0 for start, _ in rollout.given[:1])
