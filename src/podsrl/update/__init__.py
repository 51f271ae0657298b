"""Kept rollouts become one optimizer step: advantages, a batch, log-probabilities, the loss, the update."""

from podsrl.update.advantage import (
    ADVANTAGES,
    NORMALIZERS,
    Advantage,
    group_advantages,
    resolve_advantage,
    step_advantages,
    try_advantage,
)
from podsrl.update.batch import Batch, make_batch, to_samples
from podsrl.update.logprobs import HeadPath, head_path, token_logprobs
from podsrl.update.loss import NAMED_ADVANTAGES, NAMED_LOSSES, policy_loss, resolve_loss
from podsrl.update.micro_batches import micro_batches
from podsrl.update.optimizer import Optimizer
from podsrl.update.token_logprobs import TokenLogprobs
from podsrl.update.updater import Updater, UpdateStats

__all__ = [
    "ADVANTAGES",
    "NAMED_ADVANTAGES",
    "NAMED_LOSSES",
    "NORMALIZERS",
    "Advantage",
    "Batch",
    "HeadPath",
    "Optimizer",
    "TokenLogprobs",
    "UpdateStats",
    "Updater",
    "group_advantages",
    "head_path",
    "make_batch",
    "micro_batches",
    "policy_loss",
    "resolve_advantage",
    "resolve_loss",
    "step_advantages",
    "to_samples",
    "token_logprobs",
    "try_advantage",
]
