"""verl's own replay buffer, queue and configuration with a selection in it, on a Ray of this machine alone.

What follows in verl's trainer, the filling of batches and the advantages, is called as its trainer calls it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from podsrl.errors import UsageError
from podsrl.select import max_variance

if find_spec("verl") is None:
    pytest.skip("verl is not installed (make test-peers)", allow_module_level=True)

import ray
import transfer_queue as tq
import verl

pytestmark = pytest.mark.filterwarnings("ignore")  # verl's, about engines that are not installed
FOUR_OF_EIGHT = (
    "trainer.v1.sampler.custom_sampler.path=pkg://podsrl.integrations.verl",
    "trainer.v1.sampler.custom_sampler.name=PODSReplayBuffer",
    "+trainer.v1.sampler.sampler_kwargs.num_kept=4",
    "actor_rollout_ref.rollout.n=8",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
)


def config_of(*overrides: str) -> Any:
    """verl's default configuration with overrides as on its command line; a later one of a key wins."""
    from hydra import compose, initialize_config_dir

    by_key = {override.partition("=")[0]: override for override in overrides}
    with initialize_config_dir(config_dir=str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        return compose("ppo_trainer", overrides=[*by_key.values()])


def buffer_of(*overrides: str) -> Any:
    """The replay buffer that verl's trainer makes from its configuration."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    config = config_of(*FOUR_OF_EIGHT, *overrides)
    trainer = SimpleNamespace(
        config=config, trainer_mode=config.trainer.v1.trainer_mode, _add_prompts_to_generate=lambda count: None
    )
    buffer = PPOTrainer._build_replay_buffer(trainer)
    buffer.poll_interval = 0.01
    return buffer


@pytest.fixture(scope="module")
def queue() -> Iterator[Any]:
    """verl's queue, on a Ray of this process."""
    from omegaconf import OmegaConf

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
        yield tq
    finally:
        tq.close()
        ray.shutdown()


def generated(queue: Any, prompt: str, rewards: list[float], partition: str = "train", num_rows: int = 1) -> None:
    """What verl's agent loops leave in the queue: rollouts of `num_rows` rows, and the prompt, which is finished."""
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    places = [(i, row) for i in range(len(rewards)) for row in range(num_rows)]
    fields = []
    for i, _ in places:
        scores = torch.zeros(2 + i % 3)
        scores[-1] = rewards[i]
        tokens = torch.arange(3 + len(scores))
        fields.append(
            {
                "uid": prompt,
                "rm_scores": scores,
                "response_mask": torch.ones(len(scores), dtype=torch.int64),
                "prompts": tokens[:3],
                "responses": tokens[3:],
                "position_ids": tokens,
            }
        )
    queue.kv_batch_put(
        keys=[f"{prompt}_{i}_{row}" for i, row in places],
        partition_id=partition,
        fields=list_of_dict_to_tensordict(fields),
        tags=[{"status": "success", "seq_len": 5 + i % 3} for i, _ in places],
    )
    tag = {"is_prompt": True, "status": "finished", "global_steps": 1}
    queue.kv_put(key=prompt, partition_id=partition, tag=tag)


@pytest.fixture
def rewards() -> dict[str, list[float]]:
    draws = random.Random(0)
    return {f"prompt{p}": [draws.choice([0.0, 0.25, 1.0]) for _ in range(8)] for p in range(4)}


def keys_kept(rewards: dict[str, list[float]]) -> set[str]:
    return {f"{prompt}_{i}_0" for prompt, values in rewards.items() for i in max_variance(values, 4)}


def clear(queue: Any) -> None:
    for partition, keys in (queue.kv_list() or {}).items():
        if keys:
            queue.kv_clear(keys=list(keys), partition_id=partition)


def test_the_trainer_gets_the_chosen_rollouts_and_the_queue_forgets_the_others(
    queue: Any, rewards: dict[str, list[float]]
) -> None:
    clear(queue)
    for prompt, values in rewards.items():
        generated(queue, prompt, values)
    batch, metrics = buffer_of().sample(1, "train", 4)
    assert set(batch.keys) == keys_kept(rewards) == set(queue.kv_list()["train"])
    assert [tag["seq_len"] for tag in batch.tags] == [5 + int(key.split("_")[1]) % 3 for key in batch.keys]
    kept = [rewards[key.split("_")[0]][int(key.split("_")[1])] for key in batch.keys]
    every = [reward for values in rewards.values() for reward in values]
    assert metrics == {
        "pods/reward/all": pytest.approx(sum(every) / 32),
        "pods/reward/kept": pytest.approx(sum(kept) / 16),
        "pods/rollouts/generated": 32,
        "pods/rollouts/kept": 16,
    }


def test_advantages_are_over_the_kept_and_no_row_is_filled_in(queue: Any, rewards: dict[str, list[float]]) -> None:
    import numpy as np
    from verl import DataProto
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    clear(queue)
    for prompt, values in rewards.items():
        generated(queue, prompt, values)
    batch, _ = buffer_of().sample(1, "train", 4)
    assert upsample_batch_to_divisible_size(batch, 2 * 8, eos_token_id=0).keys == batch.keys
    assert len(upsample_batch_to_divisible_size(batch, 4 * 8, eos_token_id=0)) == 32  # verl's own mini-batch of 4
    data = queue.kv_batch_get(
        keys=batch.keys, partition_id="train", select_fields=["uid", "response_mask", "rm_scores"]
    )
    padded = DataProto(batch=data.to_padded_tensor())
    padded.non_tensor_batch["uid"] = np.array(padded.batch.pop("uid").tolist(), dtype=object)
    padded.batch["token_level_rewards"] = padded.batch["rm_scores"]
    found = compute_advantage_for_multi_trajectories(
        padded, batch_keys=batch.keys, adv_estimator="grpo", num_repeat=8, config=config_of().algorithm
    )
    for key, of_tokens in zip(batch.keys, found.batch["advantages"], strict=True):
        prompt, place, _ = key.split("_")
        kept = torch.tensor([rewards[prompt][i] for i in max_variance(rewards[prompt], 4)])
        wanted = (rewards[prompt][int(place)] - kept.mean()) / (kept.std() + 1e-6)
        torch.testing.assert_close(of_tokens[0], wanted)


def test_small_groups_stay_whole_and_validation_is_left_alone(queue: Any) -> None:
    clear(queue)
    generated(queue, "few", [0.0, 1.0, 0.5])
    generated(queue, "many", [0.0, 0.1, 0.2, 0.9, 1.0, 0.3])
    generated(queue, "check", [0.0] * 6, partition="val")
    buffer = buffer_of()
    batch, metrics = buffer.sample(1, "val", 1)
    assert len(batch) == 6 and metrics == {}
    batch, metrics = buffer.sample(1, "train", 2)
    assert sorted(batch.keys) == [*(f"few_{i}_0" for i in range(3)), *(f"many_{i}_0" for i in (0, 1, 3, 4))]
    assert metrics["pods/rollouts/kept"] == 7


def test_all_rows_of_a_rollout_stay_together(queue: Any) -> None:
    clear(queue)
    generated(queue, "talk", [0.0, 0.1, 0.2, 0.9, 1.0, 0.3], num_rows=2)
    batch, metrics = buffer_of("trainer.v1.trainer_mode=colocate_async", ASYNC).sample(1, "train", 1)
    assert sorted(batch.keys) == [f"talk_{i}_{row}" for i in (0, 1, 3, 4) for row in (0, 1)]
    assert metrics["pods/rollouts/generated"] == 6


ASYNC = "trainer.v1.sampler.custom_sampler.name=PODSReplayBufferAsync"


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["algorithm.adv_estimator=gae", "critic.ppo_mini_batch_size=4"], "critic.ppo_mini_batch_size = 4"),
        (["++algorithm.filter_groups.enable=true"], "filter_groups"),
        (["trainer.v1.sampler.sync_refill_failed_groups=true"], "sync_refill_failed_groups"),
        (["reward.reward_model.enable=true"], "enable_resource_pool"),
        (["+trainer.v1.sampler.sampler_kwargs.num_kept=16"], "num_kept = 16"),
        (["+trainer.v1.sampler.sampler_kwargs.num_kep=4"], "num_kep.*num_kept"),
        (["+trainer.v1.sampler.sampler_kwargs.rule=max_varianse"], "max_variance"),
        (["+trainer.v1.sampler.sampler_kwargs.rule=max_signal"], "max_signal"),
        (["trainer.v1.trainer_mode=colocate_async"], "PODSReplayBufferAsync"),
        ([ASYNC], "trainer_mode = 'sync'; wanted 'PODSReplayBuffer'"),
        (["trainer.v1.trainer_mode=separate_async", ASYNC], "separate_async"),
    ],
)
def test_what_would_train_something_else_is_an_error_when_verl_starts(overrides: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        buffer_of(*overrides)


def test_rules_and_their_options_come_from_the_configuration(queue: Any) -> None:
    clear(queue)
    generated(queue, "high", [0.0, 0.1, 0.2, 0.9, 1.0, 0.3])
    batch, _ = buffer_of("+trainer.v1.sampler.sampler_kwargs.rule=max_reward").sample(1, "train", 1)
    assert sorted(batch.keys) == [f"high_{i}_0" for i in (2, 3, 4, 5)]
