"""Every part asks, keeps and learns in two processes what it does in one."""

from __future__ import annotations

from typing import Any

from podsrl.run.step.step import training_step
from points import (
    KEPT_PROCESSES,  # noqa: F401  # read by leftovers.py
    covering,
    digest_of,
    facts,
    names_of_parts,
    of_recipes,
    trainer_at,
)


def with_every_part() -> dict[str, dict[str, Any]]:
    """Few points of the covering set that hold all parts, and `auto`, whose rule is its own."""
    found, missing = {"auto": of_recipes()["auto"]}, {*names_of_parts()}
    while missing:
        best = max(covering(), key=lambda point: len(missing & {*point.names}))
        found[str(best)] = best.tree
        missing -= {*best.names}
    return found


def three_steps() -> dict[str, list[Any]]:
    """Groups, selections and what parts remember, of each step at each point."""
    found = {}
    for name, tree in with_every_part().items():
        trainer, steps = trainer_at(tree, "scale.strategy=ddp"), list[Any]()
        for _ in range(3):
            result = training_step(trainer)
            groups = (result.groups, result.left_out, result.probes)
            kept = [(selection.group_id, selection.kept) for selection in result.selections]
            steps.append((list(map(facts, groups)), kept, digest_of(trainer.parts.systems)))
        found[name] = steps
    return found


def test_two_processes_have_the_groups_selections_and_states_of_one(two: Any) -> None:
    one = three_steps()
    for several in two.run(three_steps):
        for name, steps in one.items():
            assert several[name] == steps, name
