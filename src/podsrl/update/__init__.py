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
from podsrl.update.algorithms import ALGORITHMS, NAMED_LOSSES, Algorithm, resolve_algorithm
from podsrl.update.batch import Batch, group_weights, make_batch, to_samples
from podsrl.update.correct import Correction
from podsrl.update.logprobs import head_path
from podsrl.update.loss import LossSpec, policy_loss
from podsrl.update.optimizer import Optimizer
from podsrl.update.shapes import Shape, shape_advantages
from podsrl.update.token_logprobs import TokenLogprobs
from podsrl.update.updater import Updater, UpdateStats

__all__ = [
    "ADVANTAGES",
    "ALGORITHMS",
    "NAMED_LOSSES",
    "NORMALIZERS",
    "Advantage",
    "Algorithm",
    "Batch",
    "Correction",
    "LossSpec",
    "Optimizer",
    "Shape",
    "TokenLogprobs",
    "UpdateStats",
    "Updater",
    "group_advantages",
    "group_weights",
    "head_path",
    "make_batch",
    "policy_loss",
    "resolve_advantage",
    "resolve_algorithm",
    "shape_advantages",
    "step_advantages",
    "to_samples",
    "try_advantage",
]
