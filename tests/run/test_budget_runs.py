"""Runs with a budget of one's own: several rounds, groups of unequal size, probes, parts that remember."""

from __future__ import annotations

import pytest

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.run.metrics import step_metrics
from podsrl.run.step.trainer import Trainer
from podsrl.run.steps import training_step
from runs import config_of as small_run


def config_of(rollouts: str, *overrides: str) -> RunConfig:
    return small_run("rollouts.num_prompts=3", f"budget.rollouts=small_budgets:{rollouts}", *overrides)


def test_probes_are_generated_and_scored_and_never_trained_on() -> None:
    trainer = Trainer(config_of("after_a_probe", 'options={"small_budgets:after_a_probe" = {size = 6}}'))
    results = [training_step(trainer) for _ in range(3)]
    assert all([len(group.rollouts) for group in result.probes] == [6, 6, 6] for result in results)
    for result in results:
        mixed = [probe.index for probe in result.probes if len({r.reward for r in probe.rollouts}) > 1]
        assert [group.index for group in result.groups] == mixed
        assert len({group.id for group in (*result.groups, *result.probes)}) == 3 + len(mixed)
        line = step_metrics(result)
        assert line["tokens/generated"] == line["tokens/trained"] + line["tokens/skipped"] + line["tokens/discarded"]
    assert any(result.groups for result in results)
    assert trainer.progress.data_position == 9


def test_parts_are_found_before_the_model_loads() -> None:
    with pytest.raises(UsageError, match=r"small_budgets:forgetful' learns, but has no state"):
        Trainer(config_of("forgetful", "model.path=/nowhere"))
    with pytest.raises(UsageError, match=r"budget.rollouts = 'small_budgets:nothing' cannot be imported"):
        Trainer(config_of("nothing", "model.path=/nowhere"))


def test_the_time_limits_of_rewards_are_those_of_a_step_not_of_a_round() -> None:
    trainer = Trainer(config_of("after_a_probe"))
    new_step, calls = trainer.scorer.new_step, []
    trainer.scorer.new_step = lambda: (calls.append(1), new_step())[1]  # type: ignore[func-returns-value, method-assign]
    collected = trainer.sample()
    assert len(collected.probes) == 3 and len(calls) == 1
