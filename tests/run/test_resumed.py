"""A run that is saved and resumed after every step goes through the numbers of one that is not, whatever is under way.

What asks, keeps and shapes is resumed at every point of `points.py` (test_laws.py), a process that is killed at any
instant in test_resume.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from podsrl.run.step.trainer import Trainer
from points import digest_of
from runs import EXTRA, assert_same_weights, config_of, newest
from tests.systems.whole_steps import lines, steps

AHEAD = ("order.ahead=1", "rollouts.generator=beside:beside")
VARIED = ('task.rewards={"light_rewards:varied" = 1.0}', "task.correct=light_rewards:varied")
LUCKY = ('task.rewards={"small_parts:lucky" = 1.0}', "task.correct=small_parts:lucky")
SHORT = ("rollouts.num_rollouts=6", "rollouts.max_new_tokens=12", "select.num_kept=3", "task.digits=1")
STEERED = "systems=small_steering:Learned,small_steering:Forked"
ECHO = ("task.environment=environments:echo", "task.rewards={format = 1.0}", "rollouts.max_new_tokens=24")
MOMENTS: dict[str, Sequence[str]] = {
    "random rule, two epochs": ("optim.num_epochs=2", "select.rule=random", *VARIED),
    "adapters with dropout": ("lora.rank=4", "lora.dropout=0.1", *VARIED),
    "step ahead": (*AHEAD, *VARIED),
    "step ahead, two epochs": (*AHEAD, "optim.num_epochs=2", "select.rule=random", *VARIED),
    "step ahead, adapters": (*AHEAD, "lora.rank=4", "lora.dropout=0.1", *VARIED),
    "step ahead, decoupled": (
        *(*AHEAD, *VARIED, "optim.num_epochs=2"),
        *("correct.proximal=step_start", "correct.weight=mask", "correct.cap=1.01"),
    ),
    "guided prompts": ("systems=small_budgets:InTwoRounds,small_budgets:HalfShown",),
    "answers begun": ("select.rule=keep_all", "select.num_kept=8", "systems=small_budgets:InThreeWays"),
    "closed groups": (
        *("rollouts.num_rollouts=24", "select.num_kept=6", "rollouts.max_new_tokens=20", "rollouts.num_slots=8"),
        *("model.path=builtin:arithmetic-mixed", "task.digits=1", "task.rewards={correct=1.0}"),
        *("systems=certain", "options.certain.first=4"),
    ),
    "pruned at random": (*SHORT, "systems=random", "options.random.at=2"),
    "pruned by what learns, forked": (*SHORT, STEERED),
    "pruned and forked, step ahead": (*SHORT, STEERED, *AHEAD),
    "groups that wait": (
        *("model.path=builtin:arithmetic-mixed", "task.digits=[1, 2, 3]", "rollouts.num_rollouts=4"),
        *("rollouts.max_new_tokens=24", "order.ahead=1", "order.take=first", "order.rest=put_off"),
    ),
    "two steps ahead, put off": (
        *("model.path=builtin:arithmetic-mixed", "task.digits=[1, 2, 3]", "rollouts.num_slots=6"),
        *("rollouts.max_new_tokens=24", "order.ahead=2", "order.rest=put_off", "systems=small_parts:Twice"),
    ),
    "groups of earlier steps": (
        *("systems=dots_rr", "options.dots_rr.num=2", "optim.num_epochs=2", "rollouts.num_prompts=4"),
        *("correct.proximal=step_start", "correct.weight=full", *LUCKY),
    ),
    "several turns": ECHO,
    "several turns, step ahead": (*ECHO, *AHEAD),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_is_saved_and_resumed_after_every_step_ends_bit_identical(moment: str, tmp_path: Path) -> None:
    whole, trainer, other = (Trainer(config_of(*MOMENTS[moment])) for _ in range(3))
    wanted = lines(steps(whole, 4))
    for line in wanted:
        assert lines(steps(trainer, 1)) == [line]
        trainer.save(tmp_path, EXTRA)
        trainer, other = other, trainer
        trainer.load(newest(tmp_path))
    assert_same_weights(whole, trainer)
    assert digest_of(whole.parts.systems) == digest_of(trainer.parts.systems)
    for each in (whole, trainer, other):
        each.close()
