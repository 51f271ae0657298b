"""PODS in TRL: GRPO's trainer generates `num_generations` rollouts per prompt and trains on `num_kept` of them.

    from podsrl.integrations.trl import PODSConfig, PODSTrainer

Use these in place of `GRPOConfig` and `GRPOTrainer`; docs/from-trl.md explains the details. With `num_kept` =
`num_generations` nothing is dropped, and the weights are those of GRPOTrainer bit for bit.
"""

from podsrl.integrations.trl.config import PODSConfig
from podsrl.integrations.trl.trainer import PODSMixin, PODSTrainer

__all__ = ["PODSConfig", "PODSMixin", "PODSTrainer"]
