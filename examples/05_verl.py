"""Selection in verl: its own code builds the replay buffer from its own configuration, without a GPU or Ray.

A run has the same five overrides: `python -m verl.trainer.main_ppo` with them, and with your model and data. See
docs/from-verl.md. Importing verl takes most of the time.

    python examples/05_verl.py

Expected output:

    PODSReplayBuffer keeps 16 of 64 rollouts
    left at 64: set it to 16
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from types import SimpleNamespace

warnings.simplefilter("ignore")  # verl's, about engines that are not installed

import verl  # noqa: E402
from hydra import compose, initialize_config_dir  # noqa: E402
from verl.trainer.ppo.v1.trainer_base import PPOTrainer  # noqa: E402

from podsrl.errors import UsageError  # noqa: E402

OVERRIDES = [
    "trainer.v1.sampler.custom_sampler.path=pkg://podsrl.integrations.verl",
    "trainer.v1.sampler.custom_sampler.name=PODSReplayBuffer",
    "+trainer.v1.sampler.sampler_kwargs.num_kept=16",
    "actor_rollout_ref.rollout.n=64",
    "data.train_batch_size=64",
]


def build(*overrides: str) -> object:
    """The replay buffer, as verl's trainer builds it."""
    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        config = compose("ppo_trainer", overrides=[*OVERRIDES, *overrides])
    trainer = SimpleNamespace(config=config, trainer_mode="sync", _add_prompts_to_generate=None)
    return PPOTrainer._build_replay_buffer(trainer)


def main() -> None:
    buffer = build("actor_rollout_ref.actor.ppo_mini_batch_size=16")
    print(f"{type(buffer).__name__} keeps 16 of 64 rollouts")
    try:
        build("actor_rollout_ref.actor.ppo_mini_batch_size=64")
    except UsageError as error:
        cure = re.search(r"set it to \d+", str(error))
        print(f"left at 64: {cure[0] if cure else error}")


if __name__ == "__main__":
    main()
