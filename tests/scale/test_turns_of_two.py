"""Rollouts of several turns in two processes are those of one."""

from __future__ import annotations

from typing import Any

import environments
from environments import Direct
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.run.step.turns import EnvironmentTalks
from points import facts
from runs import config_of


def two_steps() -> list[Any]:
    """Groups and selections."""
    trainer, direct = Trainer(config_of("rollouts.max_new_tokens=40")), Direct(environments.echo)
    trainer.desk._talks = EnvironmentTalks(direct, trainer.tokenizer, 3)  # type: ignore[arg-type]
    found = []
    for _ in range(2):
        result = training_step(trainer)
        given = [[rollout.given for rollout in group.rollouts] for group in result.groups]
        found.append((facts(result.groups), given, [selection.kept for selection in result.selections]))
    return found


def test_two_processes_have_the_conversations_of_one(two: Any) -> None:
    one = two_steps()
    assert any(given for _, of_step, _ in one for of_group in of_step for given in of_group)
    assert all(several == one for several in two.run(two_steps))
