"""Watching rollouts while they are generated: what is seen of them (`Live`), and what can be done (`Act`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from podsrl.lib.notes import Notes
from podsrl.lib.seeds import hash_bits

if TYPE_CHECKING:
    from torch import Tensor

Key = tuple[str, int]
"""(group's id, rollout index)."""


@dataclass(frozen=True, slots=True)
class Live:
    """Running rollouts between forward and draw: B rollouts on some of R rows, since the same tokens share a row.

    Example: the entropy of every rollout's next token is `live.entropies[live.row_of]`.
    """

    keys: list[Key]
    """B of them."""
    num_tokens: list[int]
    """B counts: the tokens that each rollout has so far, behind its prompt."""
    random_keys: npt.NDArray[np.uint64]
    """[B] of (seed, group, index): what `coins` are made of."""
    row_of: Tensor
    """[B] int64: the row of each rollout."""
    logits: Tensor
    """[R, V] of the next token, before temperature and filters."""
    hidden: Tensor
    """[R, D] the model's last hidden state of the newest token."""
    notes: list[Notes]
    """B of them: what is kept with each rollout (`Note`)."""
    tokens: Callable[[Key], npt.NDArray[np.int32]]
    """Of one of them: its tokens so far, behind its prompt. It may be called until the watch has answered."""
    stop_ids: frozenset[int]
    """Tokens that end an answer."""

    @property
    def groups(self) -> list[str]:
        """B ids: the group of each rollout."""
        return [name for name, _ in self.keys]

    @property
    def logprobs(self) -> Tensor:
        """[R, V] float32 log-probabilities of the next token at temperature 1, without filters."""
        return self.logits.float().log_softmax(dim=-1)

    @property
    def entropies(self) -> Tensor:
        """[R] float32 entropy of the next token, in nats."""
        from torch.special import entr

        entropies: Tensor = entr(self.logprobs.exp()).sum(dim=-1)
        return entropies

    def coins(self, name: str) -> npt.NDArray[np.float64]:
        """[B] uniform numbers in [0, 1), multiples of 2**-53: one per rollout, however often it is shown.

        They are functions of (seed, group, index, name), and take nothing from the numbers that draw tokens.
        """
        return np.array([hash_bits(f"{key}/{name}".encode()) >> 11 for key in self.random_keys.tolist()]) * 2.0**-53

    def only(self, places: Sequence[int]) -> Live:
        """The rollouts at these places of `keys` alone."""
        return replace(
            self,
            keys=[self.keys[i] for i in places],
            num_tokens=[self.num_tokens[i] for i in places],
            random_keys=self.random_keys[list(places)],
            row_of=self.row_of[list(places)],
            notes=[self.notes[i] for i in places],
        )


@dataclass(frozen=True, slots=True)
class End:
    """End a rollout where it stands, as a pruned one; one that has ended stays."""

    key: Key


@dataclass(frozen=True, slots=True)
class Hold:
    """Stop a rollout where it stands, until the part's `together` says whether it goes on."""

    key: Key


@dataclass(frozen=True, slots=True)
class Fork:
    """Start rollouts of the same group that go on from the tokens of an unfinished one.

    They have the next indices of the group, so random numbers of their own.
    """

    key: Key
    num_rollouts: int = 1
    token: int | None = None
    """Set behind the tokens, as a given one (`Rollout.given`), that ends no answer; None: they draw."""
    num_tokens: int | None = None
    """They go on behind its first so many tokens; None: behind all."""


@dataclass(frozen=True, slots=True)
class Note:
    """Keep an array with a rollout (`Rollout.notes`), in place of the one of that name; its forks have it too.

    They go wherever the rollout goes: to other processes, into checkpoints, and to parts that learn.
    """

    key: Key
    name: str
    """One of the part's own: other parts' notes stand beside it."""
    values: ArrayLike
    """Any shape; it is kept as float32."""


Act = End | Hold | Fork | Note
"""What a watch may answer."""


class Watch(Protocol):
    """Sees rollouts while they are generated, and says what becomes of them."""

    at: frozenset[int] | None
    """A rollout is shown when it has so many tokens; None: in every step."""

    def look(self, live: Live) -> Iterable[Act]:
        """What is to be done before the next token is drawn, of any rollouts. It must not call the generator."""
        ...
