"""ADHint (arXiv 2512.13095): answers that begin with a part of a solution, the longer the harder a question is.

**Hints** (`Hints`). The first round asks half of each question's rollouts plainly. D is the share of wrong ones among
them. The second round asks the other half, whose answers begin with the share

    w = (most - least) · D + least + noise        within 0 and most; noise is uniform within ± `noise`

of a worked solution's tokens. A question whose w is 0 is asked plainly again.

**Advantages** (`Halves`). Plain and hinted rollouts of a group are no equals: each half has its own mean and standard
deviation (ddof 1, + 1e-4). Then right plain answers count 1 + d times, and so do wrong hinted ones, where d is what the
hint raised the share of right answers by, -1 to 1.

The authors' code and the formulas of the paper's gradients within a hint and of its advantages were not found. What is
ours: d and its place; D from right and wrong, not from rewards; the values of `most` and `noise`; a hint leaves at
least one token of the solution unsaid. The paper also trains on hint tokens, damped by how far their entropy is from
that of the answer, and not at all where the answer is bad. Here no hint token has a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.lib.slots import GO_ON
from podsrl.tasks.references import solution_reader
from podsrl.types import Ask, Group, Rollout, Selection, Task
from podsrl.update.advantage import group_advantages
from podsrl.update.shapes import rewrite_chunks

ORIGIN = "hint"
"""`Rollout.origin` of those whose answer begins with a hint."""
Share = Annotated[float, Field(ge=0, lt=1)]


class Hints:
    """Begins the answers of half of each question's rollouts with a part of a solution; it learns nothing.

    Args:
        solution: column with a worked solution of each question, or "module:function" of a task that makes it.
        most: share of its tokens where all plain answers are wrong; 0: no hints.
        least: share where all are right.
        noise: half the width of what is added to the share.
    """

    def __init__(
        self, *, solution: str = "solution", most: Share = 0.8, least: Share = 0.0, noise: Share = 0.05
    ) -> None:
        if least > most:
            raise UsageError(f"options.hints.least = {least}, options.hints.most = {most}; wanted least <= most")
        self._read = solution_reader(solution, option="options.hints.solution")
        self._most, self._least, self._noise = most, least, noise
        self.abilities = GO_ON if most else ()

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """UsageError: a question has no solution."""
        for task in tasks if self._most else ():
            self._read(task)

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """As many as without. UsageError: a half with fewer than two rollouts has no mean to be compared with."""
        if self._most and num_rollouts < 4:
            raise UsageError(
                f"budget.rollouts = 'hints' compares within halves, and rollouts.num_rollouts = {num_rollouts}; wanted "
                "at least 4"
            )
        return num_prompts, num_rollouts

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The plain half of new questions, and the other half of those that have one."""
        if not self._most:
            return asks
        plain = [replace(ask, num_rollouts=ask.num_rollouts - ask.num_rollouts // 2) for ask in asks]
        waiting = [group for group in view.groups if group.is_trained and group.num_first is None]
        noise = self._noise * view.rng("hints").uniform(-1, 1, len(waiting))
        return [*plain, *(self._second(view, *each) for each in zip(waiting, noise.tolist(), strict=True))]

    def _second(self, view: View, group: Group, noise: float) -> Ask:
        assert group.index is not None, "a group of a step has a place in the training set"
        right = sum(group.outcomes) / max(len(group.outcomes), 1)
        share = (self._most - self._least) * (1 - right) + self._least + noise
        more = Ask(index=group.index, num_rollouts=view.num_rollouts // 2, joins=group.id)
        return begun(more, self._read(view.tasks[group.index]), min(max(share, 0.0), self._most))


def begun(ask: Ask, solution: str, share: float, origin: str = ORIGIN) -> Ask:
    """The ask with that share of a solution as the beginning of its answers; as it is where the share is 0."""
    return replace(ask, start=solution, start_share=share, origin=origin) if share else ask


class Halves:
    """Advantages of plain and hinted rollouts apart, weighed by what the hint changed."""

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages [m] of each group; those of groups without hints as they are."""
        return rewrite_chunks("halves", _apart, groups, selections, advantages)


def _apart(rollouts: Sequence[Rollout], advantages: Tensor) -> Tensor:
    """[k] advantages that are linear in the rewards."""
    is_hinted = torch.tensor([is_begun(rollout) for rollout in rollouts])
    is_right = torch.tensor([rollout.is_correct for rollout in rollouts])
    if not is_hinted.any():
        return advantages
    found = torch.zeros_like(advantages)
    for half in (is_hinted, ~is_hinted):
        if half.sum() > 1:
            found[half] = group_advantages(advantages[half])
    raised = (
        0.0 if is_hinted.all() else float(is_right[is_hinted].double().mean() - is_right[~is_hinted].double().mean())
    )
    return torch.where(is_right != is_hinted, (1 + raised) * found, found)


def is_begun(rollout: Rollout) -> bool:
    """Whether its answer begins with given tokens."""
    return any(start == 0 for start, _ in rollout.completion.given[:1])
