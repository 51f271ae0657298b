"""Shapes: functions that rewrite the advantages of a step, one after another.

    f(groups, selections, advantages) -> one tensor [m] or [m, T] per group

`advantages` holds one float32 tensor [m] or [m, T] per group, in the order of `Selection.kept`, as `step_advantages`
gives it; a shape returns new tensors of the same kind and leaves its arguments alone. Each is a part's
`shape`, which may have options and learn (`podsrl.lib.parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch import Tensor

from podsrl.errors import UsageError
from podsrl.lib.parts import Call
from podsrl.types import Group, Rollout, Selection
from podsrl.update.advantage import checked_advantages, kept_by_chunk

Shape: TypeAlias = Callable[[Sequence[Group], Sequence[Selection], Sequence[Tensor]], Sequence[Tensor]]
"""What a shape is: groups, selections and their advantages `[m]` or `[m, T]`, to new advantages of either form."""


def rewrite_chunks(
    name: str,
    rewrite: Callable[[Sequence[Rollout], Tensor], Tensor],
    groups: Sequence[Group],
    selections: Sequence[Selection],
    advantages: Sequence[Tensor],
) -> list[Tensor]:
    """The answer of a shape that compares the kept rollouts of each chunk, or of each group without chunks.

    Args:
        name: of the shape, for messages.
        rewrite: the k kept rollouts of a chunk and their advantages [k] float64 -> new ones [k].
        groups, selections, advantages: as a shape gets them.

    Raises:
        UsageError: an advantage per token, which leaves no single value to compare.
    """
    found = []
    for group, selection, values in zip(groups, selections, advantages, strict=True):
        if values.ndim != 1:
            raise UsageError(
                f"systems: the shape of {name!r} compares one advantage per rollout and got one per token; name it "
                "before what gives one per token"
            )
        kept, new = [group.rollouts[i] for i in selection.kept], values.clone()
        for places in kept_by_chunk(selection):
            new[places] = rewrite([kept[place] for place in places], values[places].double()).to(values.dtype)
        found.append(new)
    return found


def shape_advantages(
    groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor], shapes: Sequence[Call]
) -> list[Tensor]:
    """The advantages of a step after all shapes, from left to right.

    Args:
        groups, selections: of the step.
        advantages: one float32 tensor [m] or [m, T] per group.
        shapes: the parts', in order.

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
