"""Shapes: functions that rewrite the advantages of a step, one after another.

    f(groups, selections, advantages) -> one tensor [m] or [m, T] per group

`advantages` holds one float32 tensor [m] or [m, T] per group, in the order of `Selection.kept`, as `step_advantages`
gives it; a shape returns new tensors of the same kind and leaves its arguments alone. `loss.shape` names shapes by
name; each is a part with options (`[options.NAME]`), and may learn (`podsrl.lib.slots`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch import Tensor

from podsrl.lib.resolve import Table
from podsrl.lib.slots import Factory, Filled, Slot
from podsrl.types import Group, Selection
from podsrl.update.advantage import checked_advantages

Shape: TypeAlias = Callable[[Sequence[Group], Sequence[Selection], Sequence[Tensor]], Sequence[Tensor]]
"""What a shape is: groups, selections and their advantages `[m]` or `[m, T]`, to new advantages of either form."""

SHAPES: Table[Factory] = Table({"bins": "podsrl.systems.gdro:BinWeights", "novelty": "podsrl.systems.xrpo:Novelty"})
"""Name -> what makes the shape."""
SHAPE = Slot("loss.shape", SHAPES, ("groups", "selections", "advantages"))
"""The slot of `loss.shape`."""


def shape_advantages(
    groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor], shapes: Sequence[Filled]
) -> list[Tensor]:
    """The advantages of a step after all shapes, from left to right.

    Args:
        groups, selections: of the step.
        advantages: one float32 tensor [m] or [m, T] per group.
        shapes: what fills `loss.shape`.

    Returns:
        As `advantages`; exactly 0 behind a completion's end.

    Raises:
        UsageError: a shape raised, or returned something else.
    """
    found = list(advantages)
    for shape in shapes:
        answer = shape(tuple(groups), tuple(selections), tuple(found))
        found = checked_advantages(shape.option, answer, groups, selections)
    return found
