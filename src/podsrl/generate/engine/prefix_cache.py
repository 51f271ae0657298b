"""Keys and values kept outside the batch: prompts that more rollouts will start from, and paused rollouts.

What is kept is bounded: beyond `max_bytes` nothing is kept and the tokens are read again instead, which costs time and
never changes a token.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from podsrl.generate.engine.kv_account import Account
from podsrl.generate.engine.kv_pool import KVPool

Prefix = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Kept:
    """The keys and values of one row's first `length` tokens, [kv_heads, length, head_dim] a layer."""

    keys: list[Tensor]
    values: list[Tensor]
    length: int
    logits: Tensor | None = None
    """[V] after the last token, where that token's successor has not been drawn by all."""
    hidden: Tensor | None = None
    """[D] of the last token, where somebody looks at it."""

    @property
    def num_bytes(self) -> int:
        return sum(t.nbytes for t in (*self.keys, *self.values, self.logits, self.hidden) if t is not None)


class Shelf:
    """What is kept now. `prompts` are found by their tokens; a pause's keys and values belong to their run."""

    def __init__(self, max_bytes: int | None, account: Account) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._account = account
        self.prompts: dict[Prefix, Kept] = {}

    def keep(
        self, pool: KVPool, row: int, length: int, logits: Tensor | None = None, hidden: Tensor | None = None
    ) -> Kept | None:
        """A copy of the first `length` tokens of a row; None where the bound leaves no room."""
        size = pool.row_bytes(length) + sum(t.nbytes for t in (logits, hidden) if t is not None)
        if self.max_bytes is not None and self.num_bytes + size > self.max_bytes:
            return None
        self._account.take(size)
        self.num_bytes += size
        return Kept(
            [keys[row, :, :length].clone() for keys in pool.keys],
            [values[row, :, :length].clone() for values in pool.values],
            length,
            None if logits is None else logits.clone(),
            None if hidden is None else hidden.clone(),
        )

    def discard(self, kept: Kept | None) -> None:
        """Give its memory back."""
        if kept is not None:
            self.num_bytes -= kept.num_bytes
            self._account.give(kept.num_bytes)

    def forget_prompt(self, prompt: Prefix) -> None:
        self.discard(self.prompts.pop(prompt, None))

    def forget_prompts(self) -> None:
        for prompt in list(self.prompts):
            self.forget_prompt(prompt)


def put_back(kept: Kept, pool: KVPool, row: int) -> None:
    """Write what was kept into a row of the pool."""
    for layer, (keys, values) in enumerate(zip(kept.keys, kept.values, strict=True)):
        pool.keys[layer][row, :, : kept.length] = keys
        pool.values[layer][row, :, : kept.length] = values
