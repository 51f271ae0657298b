"""Bounds of the importance ratio of single rollouts, in place of `loss.clip_low` and `loss.clip_high`.

    f(groups, selections) -> one tensor [m] per group, in the order of `Selection.kept`, or None: those of the loss

The ratio of a rollout with the bound ε is bounded to 1 - ε .. 1 + ε.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from podsrl.errors import UsageError, short
from podsrl.lib.parts import Call
from podsrl.types import Group, Selection

Bound: TypeAlias = Callable[[Sequence[Group], Sequence[Selection]], Sequence[Tensor] | None]


def bounds_of(groups: Sequence[Group], selections: Sequence[Selection], bound: Call | None) -> list[Tensor] | None:
    """What a part's `bound` says of the kept rollouts of a step; None: nothing, or there is no such part.

    Raises:
        UsageError: it raised, or returned something else than numbers from 0 on, one per kept rollout.
    """
    found: Any = None if bound is None else bound(tuple(groups), tuple(selections))
    if bound is None or found is None:
        return None
    rows = [value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float32) for value in found]
    sizes, wanted = [tuple(row.shape) for row in rows], [(len(selection.kept),) for selection in selections]
    if sizes != wanted:
        raise UsageError(f"{bound.option} returned bounds of the shapes {short(sizes)}; wanted {short(wanted)}")
    if not all(bool((row >= 0).all()) and bool(row.isfinite().all()) for row in rows):
        raise UsageError(f"{bound.option} returned a bound below 0, infinite or NaN; wanted numbers from 0 on")
    return rows
