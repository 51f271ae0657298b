"""Which configurations of verl a selection accepts. The keys are those of verl 0.9; test_verl_replay_buffer.py reads
them from verl's own configuration."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.integrations.verl_config import check_config

N, PROMPTS = "actor_rollout_ref.rollout.n", "data.train_batch_size"
ACTOR, CRITIC = "actor_rollout_ref.actor.ppo_mini_batch_size", "critic.ppo_mini_batch_size"
FEWER = ("max_signal", "drop_surplus")
GOOD = {N: 64, PROMPTS: 32, ACTOR: 8, CRITIC: 32, "algorithm.adv_estimator": "grpo"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {ACTOR: 4},
        {N: 16, ACTOR: 32},
        {"algorithm.adv_estimator": "gae", CRITIC: 2},
        {"critic.enable": False, "algorithm.adv_estimator": "gae"},
        {"reward.reward_model.enable": True, "reward.reward_model.enable_resource_pool": True},
    ],
)
def test_mini_batches_of_kept_rollouts_alone_pass(changes: dict[str, Any]) -> None:
    check_config((GOOD | changes).get, "sync", 16)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({N: None}, N),
        ({N: 8}, f"num_kept = 16; wanted at most {N} = 8"),
        ({ACTOR: 32}, f"{ACTOR} = 32.* set it to 8"),
        ({ACTOR: 3}, f"{ACTOR} = 3.* set it to 8"),
        ({PROMPTS: 30}, f"{PROMPTS} = 30.* 480 rows"),
        ({"algorithm.adv_estimator": "gae"}, f"{CRITIC} = 32.* set it to 8"),
        ({"critic.enable": True}, f"{CRITIC} = 32"),
        ({"algorithm.filter_groups.enable": True}, "algorithm.filter_groups.enable"),
        ({"trainer.v1.sampler.sync_refill_failed_groups": True}, "sync_refill_failed_groups"),
        ({"reward.reward_model.enable": True}, "enable_resource_pool"),
    ],
)
def test_what_would_train_something_else_is_an_error(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        check_config((GOOD | changes).get, "sync", 16)


@pytest.mark.parametrize(("mode", "rule"), [("separate_async", "random"), *(("sync", rule) for rule in FEWER)])
def test_what_would_be_filled_up_with_empty_rows_is_an_error(mode: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rf"({mode}|{rule}).*empty rows.*(colocate_async|max_variance)"):
        check_config(GOOD.get, mode, 16, rule)


@pytest.mark.skipif(find_spec("verl") is not None, reason="verl is installed")
def test_without_verl_the_replay_buffer_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^podsrl\.integrations\.verl needs verl .*pip install"):
        import_module("podsrl.integrations.verl")
