"""The seam of a search: what is written of an answer so far (`Leaf`), and what is decided about it (`Search`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from podsrl.types import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """What is written of an answer so far: the end of a path of steps. The root has no step."""

    rollout: Rollout | None = None
    """Its tokens; None at the root."""
    steps: tuple[int, ...] = ()
    """Number of each step on the path. Leaves that share the first k numbers share the text of k steps."""
    text: str = ""
    """Of all steps."""
    step: str = ""
    """Of the last one."""
    score: float = 0.0
    """How good the judge finds the text, 0 .. 1; 0 where there is no judge, or it failed."""
    is_ended: bool = False
    """Whether nothing can follow: the model ended the answer, or it is at the token limit."""

    @property
    def num_tokens(self) -> int:
        """Of all steps."""
        return 0 if self.rollout is None else len(self.rollout.token_ids)


Grow = Callable[[Sequence[Leaf], int, np.random.Generator], Sequence[int]]
"""Leaves of a question, width, random numbers -> places of the leaves that stay, any of them several times. Each of
those that have not ended goes on by one step, by itself. At least one leaf has not ended."""
Choose = Callable[[Sequence[Rollout], Sequence[float]], Rollout | None]
"""The answers that have ended and their scores -> the one that is given; None: none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search: it begins with `width` roots, and after every step `grow` says which leaves stay."""

    grow: Grow
    choose: Choose
    is_stepwise: bool = True
    """Whether it looks at leaves after every step; else once, when the answers have ended."""
    is_judged: bool = True
    """Whether it wants a judge."""
    most: int | None = None
    """Largest width; None: there is no bound."""


def highest(rollouts: Sequence[Rollout], scores: Sequence[float]) -> Rollout | None:
    """The answer with the highest score, of those in which a final answer was found if there are any; the first of
    equals."""
    key = [(rollout.answer is not None, score) for rollout, score in zip(rollouts, scores, strict=True)]
    return rollouts[max(range(len(key)), key=key.__getitem__)] if key else None
