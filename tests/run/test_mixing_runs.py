"""Dynamic sampling and more rollouts of hard questions, in real steps."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.generate import Engine
from podsrl.lib.seeds import derive
from podsrl.run.before.prepare import prepare
from podsrl.run.metrics import step_metrics
from podsrl.run.step.trainer import Trainer
from podsrl.run.steps import training_step
from podsrl.types import Group

SMALL = ("rollouts.num_prompts=4", "task.num_eval=8")
NO_MODEL = "model.path=/nowhere"


def exact(trainer: Trainer) -> Trainer:
    """Generates in float64, where no token hangs on which rows are computed together."""
    seed = derive(trainer.config.seed, "sampling")
    trainer.engine = Engine(copy.deepcopy(trainer.model).double(), seed=seed, tokenizer=trainer.tokenizer)
    return trainer


def found(groups: Sequence[Group]) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Ids and tokens of groups."""
    return [(group.id, [rollout.completion.token_ids for rollout in group.rollouts]) for group in groups]


def test_a_step_trains_on_the_first_mixed_groups_that_one_long_round_would_have_given() -> None:
    collected = exact(Trainer(load_config("systems/dapo", SMALL))).sample()
    assert len(collected.seen) > 4
    whole = exact(Trainer(load_config("mixed", [f"rollouts.num_prompts={len(collected.seen)}", *SMALL[1:]]))).sample()
    assert found(whole.groups) == found(collected.seen)
    assert found(collected.groups) == found([group for group in whole.groups if group.is_mixed][:4])
    assert len(collected.groups) == 4 and len(collected.left_out) == len(collected.seen) - 4
    assert collected.data_position == len(collected.seen)


def test_dynamic_sampling_and_pods_train_on_16_of_64_rollouts_of_mixed_groups_alone() -> None:
    pods = ("rollouts.num_rollouts=64", "select.rule=max_variance", "select.num_kept=16")
    trainer = Trainer(load_config("systems/dapo", [*SMALL, *pods]))
    for _ in range(2):
        result = training_step(trainer)
        assert len(result.groups) == 4 and all(group.is_mixed for group in result.groups)
        assert [len(selection.kept) for selection in result.selections] == [16] * 4
        line = step_metrics(result)
        assert line["groups/zero_signal"] == line["tokens/skipped"] == 0
        assert line["groups/left_out"] == len(result.left_out)
        assert line["rollouts/all"] + line["rollouts/left_out"] == 64 * (4 + len(result.left_out))


def test_sizes_that_harder_cannot_have_end_before_the_model_loads() -> None:
    with pytest.raises(UsageError, match=r"options.harder.most = 4 is less than rollouts.num_rollouts = 8"):
        Trainer(load_config("systems/dars", [*SMALL, NO_MODEL, "options.harder.most=4"]))


def test_filtering_by_shaped_rewards_is_warned_of() -> None:
    def warnings(*options: str) -> list[str]:
        parts = prepare(load_config("systems/dapo", [*SMALL, *options]))
        parts.close()
        return [line for line in parts.warnings if "options.mixed.metric" in line]

    [line] = warnings("options.mixed.metric=reward")
    assert "'reward'" in line and "format" in line and "'correct'" in line
    assert warnings() == warnings("task.rewards.correct=1", "options.mixed.metric=reward") == []
