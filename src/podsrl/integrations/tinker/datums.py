"""Kept rollouts as the service's records: its losses are sums over tokens, so an average goes into the advantages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from podsrl.update import Batch, LossSpec

_NAMES = {"ppo": "ppo", "cispo": "cispo", "none": "importance_sampling"}
"""`loss.clip` -> the service's loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rollout as the service reads it: T - 1 tokens, and for each the one that follows.

    Example: the prompt (5, 6) with the completion (7,) has the tokens (5, 6) and the targets (6, 7); what belongs to
    the first target, which is part of the prompt, is 0.
    """

    tokens: list[int]
    target_tokens: list[int]
    logprobs: list[float]
    """Natural logs under the policy that drew the targets; 0 where none drew them."""
    advantages: list[float]
    """With the token's share of the average; 0 where there is nothing to learn."""


def loss_name(loss: LossSpec) -> tuple[str, dict[str, float]]:
    """The service's name of a loss, and its bounds on the ratio.

    Example:
        >>> loss_name(LossSpec(ratio="token", clip="ppo", aggregate="token_mean", clip_low=0.25, clip_high=0.5))
        ('ppo', {'clip_low_threshold': 0.75, 'clip_high_threshold': 1.5})
    """
    if loss.clip == "none":
        return _NAMES[loss.clip], {}
    assert loss.clip_low is not None and loss.clip_high is not None, "checked by podsrl.update"
    bounds = {"clip_low_threshold": 1 - loss.clip_low, "clip_high_threshold": 1 + loss.clip_high}
    return _NAMES[loss.clip], bounds


def token_shares(batch: Batch, loss: LossSpec, *, rows: float, tokens: float, max_length: int) -> Tensor:
    """[B, 1] what the loss of each of a row's tokens is multiplied by, so that the sum is `loss.aggregate`.

    Args:
        rows, tokens: of the whole optimizer step.
        max_length: token limit of a completion.
    """
    lengths = batch.target_mask.sum(-1, keepdim=True).clamp(min=1).double()
    return {
        "sequence_mean": 1 / (lengths * rows),
        "token_mean": torch.full_like(lengths, 1 / max(tokens, 1)),
        "constant": torch.full_like(lengths, 1 / (rows * max_length)),
        "group_mean": batch.row_weights.double()[:, None] / (lengths * rows),
    }[loss.aggregate]


def to_rows(batch: Batch, shares: Tensor) -> list[Row]:
    """The batch's rows; shares are of `token_shares`."""
    values = batch.advantages if batch.advantages.ndim == 2 else batch.advantages[:, None]
    weighted = torch.where(batch.target_mask, values.double() * shares, torch.zeros((), dtype=torch.float64))
    logprobs = torch.where(batch.target_mask, batch.behaviour_logprobs, torch.zeros(()))
    found = []
    for row, length in enumerate(batch.attention_mask.sum(-1).tolist()):
        ids: list[int] = batch.input_ids[row, :length].tolist()
        found.append(
            Row(
                tokens=ids[:-1],
                target_tokens=ids[1:],
                logprobs=logprobs[row, 1:length].tolist(),
                advantages=weighted[row, 1:length].tolist(),
            )
        )
    return found


def to_logprobs(found: list[Any], batch: Batch) -> Tensor:
    """[B, T] float32 log-probs that the service gave for the rows' targets; 0 elsewhere."""
    logprobs = torch.zeros(batch.input_ids.shape)
    for row, values in enumerate(found):
        logprobs[row, 1 : len(values) + 1] = torch.tensor(list(values), dtype=torch.float32)
    return logprobs
