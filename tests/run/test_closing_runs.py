"""Groups that are closed in steps: `certain` gives the same samples and weights for fewer tokens; resumed runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from podsrl.lib.stages import FATES
from podsrl.policy import load_model
from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer
from runs import EXTRA, config_of, newest
from tests.systems.whole_steps import lines, steps

SIZES = (
    *("rollouts.num_prompts=3", "rollouts.num_rollouts=24", "select.num_kept=6", "rollouts.max_new_tokens=20"),
    *("model.path=builtin:arithmetic-mixed", "task.digits=1", "task.rewards={correct=1.0}"),
)
CERTAIN = ("systems=certain", "options.certain.first=4")


def trainer_of(*overrides: str) -> Trainer:
    """In float64, so that other batches of the generator round below what is compared."""
    config = config_of(*SIZES, *overrides)
    return Trainer(config, model=load_model(config.model).double())


def samples(results: list[StepResult]) -> list[Any]:
    return [
        (sample.group_id, sample.rollout.index, sample.rollout.token_ids, sample.advantage)
        for result in results
        for sample in result.samples
    ]


def tokens(results: list[StepResult]) -> int:
    return sum(line["tokens/generated"] for line in lines(results))


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in trainer.model.parameters()])


def test_certain_trains_as_without_it_for_fewer_tokens_and_the_fewer_the_fewer_slots() -> None:
    plain = trainer_of()
    wanted = steps(plain, 2)
    counts = [tokens(wanted)]
    for slots in (0, 12, 4):
        trainer = trainer_of(*CERTAIN, f"rollouts.num_slots={slots}", "rollouts.scheduler=continuous+breadth")
        found = steps(trainer, 2)
        assert samples(found) == samples(wanted)
        # Norms and recorded log-probs are float32, to a relative 6e-8; a step moves a weight by up to 3e-4.
        torch.testing.assert_close(weights(trainer), weights(plain), rtol=0, atol=1e-6)
        assert any(len(group.rollouts) < 24 for result in found for group in result.groups)
        for result, line in zip(found, lines(found), strict=True):
            assert line["tokens/generated"] == sum(line[f"tokens/{fate}"] for fate in FATES)
            assert line["rollouts/all"] == sum(len(group.rollouts) for group in result.groups)
            assert line["tokens/generated"] - line["tokens/pruned"] == sum(
                rollout.num_drawn for group in result.groups for rollout in group.rollouts
            )
        counts.append(tokens(found))
    assert counts[0] >= counts[1] > counts[2] > counts[3]


def test_rewards_of_workers_are_polled_and_change_no_group() -> None:
    own = ('task.rewards={"light_rewards:is_odd" = 0.5}', "task.correct=light_rewards:is_odd", "task.reward_workers=1")
    plain = trainer_of(*own)
    wanted = steps(plain, 2)
    bounds = ("systems=certain", "options.certain={first=4,lowest=0.0,highest=0.5}")
    trainer = trainer_of(*own, *bounds, "rollouts.num_slots=4")
    found = steps(trainer, 2)
    assert samples(found) == samples(wanted)
    assert sum(len(group.rollouts) for result in found for group in result.groups) < 2 * 3 * 24
    for each in (plain, trainer):
        each.parts.close()


def test_a_step_that_was_read_for_a_checkpoint_has_the_same_groups(tmp_path: Path) -> None:
    """It was generated whole, so only what was in vain is more."""
    few = ("rollouts.num_slots=8", "order.ahead=1", "rollouts.generator=beside:beside")
    trainer, resumed = (trainer_of(*CERTAIN, *few) for _ in range(2))
    steps(trainer, 1)
    trainer.save(tmp_path, EXTRA)
    wanted = steps(trainer, 2)
    resumed.load(newest(tmp_path))
    assert lines(steps(resumed, 2)) == lines(wanted)
    plain = trainer_of(*few)
    steps(plain, 1)
    assert samples(steps(plain, 2)) == samples(wanted)


def test_until_mixed_closes_groups_and_tells_parts_the_first_rollouts_alone() -> None:
    trainer = trainer_of("systems=until_mixed", "options.until_mixed.first=4", "rollouts.num_slots=8")
    [result] = steps(trainer, 1)
    for group in result.groups:
        right = [rollout.is_correct for rollout in group.rollouts]
        assert len(right) == 24 or (len(right) >= 4 and {True, False} == {*right})
        assert len(group.outcomes) <= 4
        assert len(right) <= 4 or len({*right[:-1]}) == 1 or len(right) == 24
