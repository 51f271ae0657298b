"""Kept rollouts as tensors: one row per rollout, prompt and completion together, padded on the right.

B rows, T tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.types import Group, Rollout, Sample, Selection
from podsrl.update.transfer import move


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows to train on.

    Example: the prompt (5, 6) with the completion (7,), beside the prompt (8,) with (9, 2, 3):

        input_ids    5 6 7 ·    8 9 2 3
        target_mask  0 0 1 0    0 1 1 1
    """

    input_ids: Tensor
    """[B, T] int64: prompt, completion, padding."""
    attention_mask: Tensor
    """[B, T] bool: prompt and completion."""
    target_mask: Tensor
    """[B, T] bool: completion, without the tokens that were given."""
    behaviour_logprobs: Tensor
    """[B, T] float32, natural logs under the policy that sampled the tokens; 0 where there is no target."""
    advantages: Tensor
    """[B] float32, one per row; or [B, T] float32, one per token, 0 outside the completion."""
    group: Tensor
    """[B] int64: the same number for neighbouring rows with the same prompt."""
    row_weights: Tensor
    """[B] float32: what a row counts in a mean over groups, as `group_weights` gives it."""
    minibatch: Tensor
    """[B] int64: which mini-batch of the step a row belongs to, from 0."""
    given_mask: Tensor | None = None
    """[B, T] bool: tokens of the completion that no policy drew (`Rollout.given`); None: there are none."""
    bounds: Tensor | None = None
    """[B] float32: how far a row's ratio may be from 1, NaN: as the loss says; None: so for all."""
    start_logprobs: Tensor | None = None
    """[B, T], float32 or wider: natural logs under the weights at the start of the step's update; None: nothing reads
    them, or the weights are those still."""

    @property
    def completion_mask(self) -> Tensor:
        """[B, T] bool."""
        return self.target_mask if self.given_mask is None else self.target_mask | self.given_mask

    @property
    def num_sequences(self) -> int:
        return len(self.input_ids)

    @property
    def num_tokens(self) -> int:
        """Targets."""
        return int(self.target_mask.sum())

    def has_advantage(self) -> Tensor:
        """[B] bool: the rows in which the advantage of some target is not 0."""
        if self.advantages.ndim == 1:
            return self.advantages != 0
        return ((self.advantages != 0) & self.target_mask).any(-1)

    def rows(self, index: Tensor) -> Batch:
        """The rows [K] int64 or [B] bool in their order, without the columns that only the others need."""
        lengths = self.attention_mask[index].sum(-1)
        width = int(lengths.max()) if len(lengths) else 0
        return Batch(
            input_ids=self.input_ids[index, :width],
            attention_mask=self.attention_mask[index, :width],
            target_mask=self.target_mask[index, :width],
            behaviour_logprobs=self.behaviour_logprobs[index, :width],
            advantages=self.advantages[index] if self.advantages.ndim == 1 else self.advantages[index, :width],
            group=self.group[index],
            row_weights=self.row_weights[index],
            minibatch=self.minibatch[index],
            given_mask=None if self.given_mask is None else self.given_mask[index, :width],
            bounds=None if self.bounds is None else self.bounds[index],
            start_logprobs=None if self.start_logprobs is None else self.start_logprobs[index, :width],
        )

    def to(self, device: torch.device) -> Batch:
        return move(self, device)


def make_batch(
    samples: Sequence[Sample],
    *,
    pad_token_id: int,
    row_weights: Sequence[float] | None = None,
    minibatches: Sequence[int] | None = None,
) -> Batch:
    """Lay out B samples as tensors on the CPU.

    Args:
        samples: B kept rollouts. Each prompt has at least one token; a completion without tokens gives a row without
            targets. If one sample has an advantage per token, the batch has them for all.
        pad_token_id: fills the rows' ends; masks say what is real, so any valid id will do.
        row_weights: B of them, where the samples are a share of a step (default: the `group_weights` of these).
        minibatches: B numbers from 0, where the step has several (default: all are in the first).

    Returns:
        The batch, rows in the order given.

    Raises:
        UsageError: an empty prompt, log-probs that are missing or not finite, or advantages per token that are not one
            per token.

    Example:
        >>> done = Rollout(
        ...     group_id="a", index=0, token_ids=(7,), logprobs=(-0.5,), finish_reason="stop", version=0
        ... )
        >>> sample = Sample(group_id="a", prompt_ids=(5, 6), rollout=done, advantage=1.0)
        >>> batch = make_batch([sample], pad_token_id=0)
        >>> batch.input_ids.tolist(), batch.target_mask.tolist(), batch.behaviour_logprobs.tolist()
        ([[5, 6, 7]], [[False, False, True]], [[0.0, 0.0, -0.5]])
    """
    prompt_ids, completions = [sample.prompt_ids for sample in samples], [sample.rollout for sample in samples]
    prompt_lengths = _lengths(prompt_ids)
    lengths = prompt_lengths + _lengths([done.token_ids for done in completions])
    if (prompt_lengths == 0).any():
        raise UsageError(
            f"the prompt of row {int(prompt_lengths.argmin())} is empty; the first token needs something to follow"
        )
    tokens = chain.from_iterable((*sample.prompt_ids, *sample.rollout.token_ids) for sample in samples)
    column = torch.arange(int(lengths.max()) if len(lengths) else 0)
    attention_mask = column < lengths[:, None]
    completion_mask = attention_mask & (column >= prompt_lengths[:, None])
    given_mask = _given(completions, prompt_lengths, completion_mask)
    return Batch(
        input_ids=_fill(attention_mask, _flat(tokens, np.int64), pad_token_id),
        attention_mask=attention_mask,
        target_mask=completion_mask if given_mask is None else completion_mask & ~given_mask,
        behaviour_logprobs=_fill(completion_mask, _flat_logprobs(completions), 0.0),
        advantages=_advantages(samples, completion_mask),
        group=_group(prompt_ids),
        row_weights=torch.tensor(group_weights(samples) if row_weights is None else row_weights, dtype=torch.float32),
        minibatch=torch.tensor([0] * len(samples) if minibatches is None else minibatches, dtype=torch.int64),
        given_mask=given_mask,
        bounds=_bounds(samples),
    )


def group_weights(samples: Sequence[Sample]) -> list[float]:
    """What each sample of a step counts in a mean over groups: rows / (groups × rows of its group).

    Their mean is 1, and where groups are equal each is 1.

    Args:
        samples: B, all of a step; those with an advantage of 0 count too.

    Example: a group of one row beside one of three: 4 / (2 × 1) and 4 / (2 × 3).
    """
    sizes = Counter(sample.group_id for sample in samples)
    return [len(samples) / (len(sizes) * sizes[sample.group_id]) for sample in samples]


def to_samples(
    groups: Sequence[Group],
    selections: Sequence[Selection],
    advantages: Sequence[Tensor],
    bounds: Sequence[Tensor] | None = None,
) -> list[Sample]:
    """The kept rollouts of a step, in the order of the groups and of `kept`.

    Args:
        groups: P groups.
        selections: what was kept of each.
        advantages: [m] or [m, T] per group, as from `step_advantages`.
        bounds: [m] per group, as from `bounds_of`.
    """
    samples = []
    for number, (group, selection, of_group) in enumerate(zip(groups, selections, advantages, strict=True)):
        own = bounds[number].tolist() if bounds is not None else [None] * len(selection.kept)
        chunk_of = {i: place for place, chunk in enumerate(selection.chunks) for i in chunk}
        for i, value, bound in zip(selection.kept, of_group.tolist(), own, strict=True):
            rollout = group.rollouts[i]
            sample = Sample(
                group_id=group.id,
                prompt_ids=rollout.prompt_ids or group.prompt_ids,
                rollout=rollout,
                advantage=tuple(value[: len(rollout.token_ids)]) if isinstance(value, list) else value,
                chunk=chunk_of.get(i, 0),
                bound=bound,
            )
            samples.append(sample)
    return samples


def _bounds(samples: Sequence[Sample]) -> Tensor | None:
    if all(sample.bound is None for sample in samples):
        return None
    return torch.tensor([math.nan if sample.bound is None else sample.bound for sample in samples], dtype=torch.float32)


def _given(completions: Sequence[Rollout], prompt_lengths: Tensor, completion_mask: Tensor) -> Tensor | None:
    if not any(done.given for done in completions):
        return None
    mask = torch.zeros_like(completion_mask)
    for row, (done, length) in enumerate(zip(completions, prompt_lengths.tolist(), strict=True)):
        for start, end in done.given:
            mask[row, length + start : length + end] = True
    return mask


def _advantages(samples: Sequence[Sample], completion_mask: Tensor) -> Tensor:
    """[B] float32; [B, T] where a sample has an advantage per token."""
    values = [sample.advantage for sample in samples]
    if not any(isinstance(value, tuple) for value in values):
        return torch.tensor(values, dtype=torch.float32)
    rows = []
    for row, sample in enumerate(samples):
        length, value = len(sample.rollout.token_ids), sample.advantage
        rows.append(value if isinstance(value, tuple) else (value,) * length)
        if len(rows[-1]) != length:
            raise UsageError(
                f"row {row} has {len(rows[-1])} advantages for the {length} tokens of its completion; wanted one "
                "number, or one per token"
            )
    return _fill(completion_mask, _flat(chain.from_iterable(rows), np.float32), 0.0)


def empty_piece() -> Batch:
    """One row of two tokens, for a forward that only has to take place."""
    ids = torch.zeros(1, 2, dtype=torch.int64)
    real = torch.ones(1, 2, dtype=torch.bool)
    return Batch(
        input_ids=ids,
        attention_mask=real,
        target_mask=torch.tensor([[False, True]]),
        behaviour_logprobs=torch.zeros(1, 2),
        advantages=torch.zeros(1),
        group=torch.zeros(1, dtype=torch.int64),
        row_weights=torch.ones(1),
        minibatch=torch.zeros(1, dtype=torch.int64),
    )


def _group(prompt_ids: Sequence[Sequence[int]]) -> Tensor:
    """[B] a number that grows by one where a row's prompt is not the one before it."""
    changes = [a is not b and a != b for a, b in pairwise(prompt_ids)]
    return torch.tensor([0, *changes][: len(prompt_ids)], dtype=torch.int64).cumsum(0)


def _lengths(rows: Sequence[Sequence[Any]]) -> Tensor:
    return torch.tensor([len(row) for row in rows], dtype=torch.int64)


def _flat(values: Iterable[float], dtype: type[np.generic]) -> Tensor:
    return torch.from_numpy(np.fromiter(values, dtype=dtype))


def _flat_logprobs(completions: Sequence[Rollout]) -> Tensor:
    if any(len(done.logprobs) != len(done.token_ids) for done in completions):
        raise UsageError(
            "a completion has not one log-prob per token; the generator must return the behaviour policy's"
        )
    flat = _flat(chain.from_iterable(done.logprobs for done in completions), np.float32)
    if not torch.isfinite(flat).all():
        raise UsageError(
            "a completion has a log-prob that is NaN or infinite; mark such a rollout invalid before selection"
        )
    return flat


def _fill(mask: Tensor, values: Tensor, padding: float) -> Tensor:
    """`values` laid along the true places of `mask`, row after row; `padding` elsewhere."""
    return torch.full(mask.shape, padding, dtype=values.dtype).masked_scatter_(mask, values)
