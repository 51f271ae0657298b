"""What a hook sees of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from podsrl.generate.engine.sequence import Key


@dataclass(frozen=True, slots=True)
class StepView:
    """The live rollouts between forward and draw. R rows, B >= R rollouts: rollouts with the same tokens share a row.

    Example: the entropy of every rollout's next token is `view.entropies[view.row_of]`.
    """

    keys: Sequence[Key]
    """B pairs (request id, rollout index)."""
    num_tokens: Sequence[int]
    """B: new tokens each has made so far."""
    row_of: Tensor
    """[B] int64: the row each stands on."""
    logits: Tensor
    """[R, V] of the next token, before temperature and filters."""
    hidden: Tensor
    """[R, D] the model's last hidden state of the newest token."""

    @property
    def logprobs(self) -> Tensor:
        """[R, V] float32 log-probabilities of the next token at temperature 1, without filters."""
        return torch.log_softmax(self.logits.float(), dim=-1)

    @property
    def entropies(self) -> Tensor:
        """[R] float32 entropy of the next token, in nats."""
        entropies: Tensor = torch.special.entr(self.logprobs.exp()).sum(dim=-1)
        return entropies
