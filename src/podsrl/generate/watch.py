"""Watching rollouts while they are generated: what is seen of them (`Live`), and what can be done (`End`, `Fork`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from podsrl.errors import UsageError, short

Key = tuple[str, int]
"""(request id, rollout index)."""


@dataclass(frozen=True, slots=True)
class Live:
    """Running rollouts between forward and draw: B rollouts on some of R rows, since the same tokens share a row.

    Example: the entropy of every rollout's next token is `live.entropies[live.row_of]`.
    """

    keys: list[Key]
    """B of them."""
    num_tokens: list[int]
    """B counts: the tokens that each rollout has so far, behind its prompt."""
    row_of: Tensor
    """[B] int64: the row of each rollout."""
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


@dataclass(frozen=True, slots=True)
class End:
    """End a rollout where it stands; one that has ended stays."""

    key: Key
    reason: Literal["pruned", "postponed"] = "pruned"

    def __post_init__(self) -> None:
        if self.reason not in ("pruned", "postponed"):
            raise UsageError(f"End of {self.key} with reason = {short(self.reason)}: wanted 'pruned' or 'postponed'")


@dataclass(frozen=True, slots=True)
class Fork:
    """Start rollouts of the same group that go on from the tokens of an unfinished one.

    They have the next indices of the group, so random numbers of their own.
    """

    key: Key
    num_rollouts: int = 1
    token: int | None = None
    """Set behind the tokens, as a given one (`Begun.given`); None: they draw."""


class Watch(Protocol):
    """Sees rollouts while they are generated, and says what becomes of them."""

    at: frozenset[int] | None
    """A rollout is shown when it has so many tokens; None: in every step."""

    def look(self, live: Live) -> Iterable[End | Fork]:
        """What is to be done before the next token is drawn, of any rollouts. It must not call the generator."""
        ...
