"""Sequences that wait for the scheduler, and the prompts that are kept for them outside the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from torch import Tensor

from podsrl.generate.engine.kv_account import Account
from podsrl.generate.engine.kv_pool import KVPool, SavedRow
from podsrl.generate.engine.sequence import Sequence
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.scheduler import Scheduler

Prefix = tuple[int, ...]
"""A prompt, or a prompt and the tokens made so far."""


class PrefixCache:
    """Copies of the rows of prompts that more sequences will start from.

    Beyond `max_bytes` nothing is kept. Prompts are then read again, which costs time and never changes a token.
    `account` counts these bytes with the rest of the key-value memory.
    """

    def __init__(self, max_bytes: int | None, account: Account) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        """Bytes kept now."""
        self.prompts: dict[Prefix, SavedRow] = {}
        """Kept prompts."""
        self._account = account

    def keep(self, prompt: Prefix, pool: KVPool, row: int, logits: Tensor, hidden: Tensor) -> None:
        """Copy the first tokens of a row, which are this prompt, where the bound leaves room."""
        size = pool.row_bytes(len(prompt)) + logits.nbytes + hidden.nbytes
        if self.max_bytes is not None and self.num_bytes + size > self.max_bytes:
            return
        self._account.take(size)
        self.num_bytes += size
        blocks = [block[:, row, :, : len(prompt)].clone() for block in pool.blocks]
        self.prompts[prompt] = SavedRow(blocks, logits.clone(), hidden.clone())

    def forget(self, prompt: Prefix) -> None:
        """Give a prompt's memory back, if it is kept."""
        if (saved := self.prompts.pop(prompt, None)) is not None:
            self.num_bytes -= saved.num_bytes
            self._account.give(saved.num_bytes)

    def forget_all(self) -> None:
        """Give all prompts' memory back."""
        for prompt in list(self.prompts):
            self.forget(prompt)


class Queue:
    """Waiting sequences by their jobs. A prompt stays in the cache as long as a waiting sequence will start from it."""

    def __init__(self, scheduler: Scheduler, cache: PrefixCache) -> None:
        self.has_changed = True
        """A sequence arrived, ended or left since the scheduler was last asked."""
        self._scheduler = scheduler
        self._cache = cache
        self._sequences: dict[Job, Sequence] = {}
        self._num_starters: Counter[Prefix] = Counter()
        """How many waiting sequences will start from a prompt."""

    def __len__(self) -> int:
        return len(self._sequences)

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Let sequences wait."""
        jobs = []
        for sequence in sequences:
            jobs.append(sequence.job)
            self._sequences[sequence.job] = sequence
            if len(sequence.history) == 0:
                self._num_starters[sequence.request.prompt_ids] += 1
        self._scheduler.submit(jobs)
        self.has_changed = True

    def withdraw(self, sequences: list[Sequence]) -> None:
        """Take sequences out of the queue."""
        self._scheduler.withdraw([sequence.job for sequence in sequences])
        self._remove(sequences)
        self.forget_prompts(sequences)

    def withdraw_all(self) -> None:
        """Take everything back from the scheduler, which may be the caller's own object and be used again."""
        with suppress(Exception):  # the scheduler itself may be what failed
            self._scheduler.withdraw(list(self._sequences))

    def admit(self, running: list[Job]) -> list[Sequence]:
        """Take out the sequences that start now. Call `forget_prompts` when they have started."""
        self.has_changed = False
        sequences = [self._sequences[job] for job in self._scheduler.admit(running)]
        self._remove(sequences)
        return sequences

    def is_wanted(self, prompt: Prefix) -> bool:
        """Whether a waiting sequence will start from this prompt."""
        return self._num_starters[prompt] > 0

    def forget_prompts(self, sequences: list[Sequence]) -> None:
        """Drop those prompts of these sequences that no waiting sequence will start from."""
        for prompt in {sequence.request.prompt_ids for sequence in sequences}:
            if self._num_starters[prompt] == 0:
                del self._num_starters[prompt]
                self._cache.forget(prompt)

    def _remove(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            del self._sequences[sequence.job]
            if len(sequence.history) == 0:
                self._num_starters[sequence.request.prompt_ids] -= 1
