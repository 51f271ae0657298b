"""The seam of the replay stage: groups of earlier steps that a step trains on besides its own.

A recalled group is an ordinary `Group`: its completions carry the log-probabilities and versions of the policy that
made them, and `Group.step` says when that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from podsrl.types import Group


class Keeper(Protocol):
    """Keeps groups; the same ones on every process of a run."""

    def take(self, step: int, fresh: Sequence[Group]) -> Sequence[Group]:
        """Kept groups to train on in this step, besides the fresh ones."""
        ...

    def put(self, step: int, fresh: Sequence[Group]) -> None:
        """After the update: the groups that this step generated."""
        ...

    def state(self) -> Sequence[Group]:
        """All that it keeps; a checkpoint holds it."""
        ...

    def restore(self, groups: Sequence[Group]) -> None:
        """Go on from `state`."""
        ...
