"""The running sequences, and the rows of the model's batch that they share.

Sequences with the same tokens so far are one row: the model computes those tokens once for all of them. When they draw
different tokens the row splits, and every new row but one gets a copy of the keys and values. A sequence's random
numbers depend on its own name alone, so its tokens are those that it would have drawn on a row of its own.

    sequences  B running ones, in arrays of B entries; `row_of[b]` is the row of sequence b
    rows       R <= B; row r has `lengths[r]` tokens in the pool, and its token `newest[r]` is computed next
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from podsrl.generate.base import Sampling
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.generate.engine.sequence import EMPTY, History, Sequence

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Split(NamedTuple):
    """The rows after a draw, one per pair of old row and new token."""

    parents: Ints
    """[R'] the old row of each new one."""
    newest: Ints
    """[R'] its token."""
    places: Ints
    """[R'] where it goes: 0 .. R'-1 in some order."""
    member_of: Ints
    """[B] which of the new rows each sequence is on."""


def split_rows(row_of: Ints, tokens: Ints) -> Split:
    """Split rows whose sequences drew different tokens, drop empty rows, and number the rest from 0.

    The first part of an old row stays where it is, if that lies below the new number of rows; every other part goes
    into a hole. So what has to be copied is one row per split and per hole filled.

    Example: five sequences on rows 0 and 1 draw 7, 9, 7, 5, 5. Row 0 splits: its first part (token 7) stays, its
    second (token 9) goes to the new row 2, and row 1 stays as it is.

        >>> split = split_rows(np.array([0, 0, 0, 1, 1]), np.array([7, 9, 7, 5, 5]))
        >>> split.parents.tolist(), split.newest.tolist(), split.places.tolist(), split.member_of.tolist()
        ([0, 0, 1], [7, 9, 5], [0, 2, 1], [0, 1, 0, 2, 2])

    Then the sequences of row 0 end. Rows 1 and 2 are left, so row 2 moves into the hole at 0:

        >>> split = split_rows(np.array([2, 1, 1]), np.array([4, 8, 8]))
        >>> split.parents.tolist(), split.newest.tolist(), split.places.tolist(), split.member_of.tolist()
        ([1, 2], [8, 4], [1, 0], [1, 0, 0])
    """
    num_values = int(tokens.max()) + 1 if len(tokens) else 1
    keys, member_of = np.unique(row_of * num_values + tokens, return_inverse=True)
    parents, newest = keys // num_values, keys % num_values
    num_rows = len(keys)
    stays = np.ones(num_rows, bool)
    stays[1:] = parents[1:] != parents[:-1]
    stays &= parents < num_rows
    places = parents.copy()
    if not stays.all():
        is_hole = np.ones(num_rows, bool)
        is_hole[parents[stays]] = False
        places[~stays] = np.flatnonzero(is_hole)
    return Split(parents, newest, places, member_of)


class Rows:
    """B running sequences on R rows of a pool."""

    def __init__(self, pool: KVPool) -> None:
        self.pool = pool
        self.sequences: list[Sequence] = []
        self.row_of: Ints = np.zeros(0, np.int64)  # [B]
        self.num_new: Ints = np.zeros(0, np.int64)  # [B] tokens made
        self.limits: Ints = np.zeros(0, np.int64)  # [B] tokens it may make
        self.random_keys: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)  # [B]
        self.samplings: list[Sampling] = []  # the distinct ones
        self.sampling_of: Ints = np.zeros(0, np.int64)  # [B] index into them
        self.lengths: Ints = np.zeros(0, np.int64)  # [R]
        self.newest: Ints = np.zeros(0, np.int64)  # [R]
        self._places: Ints = np.zeros(0, np.int64)  # [B] where in the store its tokens are
        self._tokens = np.zeros((0, 0), np.int32)  # the store: one line per place, one column per token made
        self._logprobs = np.zeros((0, 0), np.float32)
        self._free: list[int] = []  # places

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    @property
    def has_own_rows(self) -> bool:
        """Whether sequence b is alone on row b, for all b."""
        return self.num_rows == len(self.sequences) and bool((self.row_of == np.arange(self.num_rows)).all())

    # --- sequences join and leave ---

    def add(self, sequences: list[Sequence], rows: list[int]) -> None:
        """Let sequences join, each on its row."""
        if not sequences:
            return
        num_new = np.array([len(sequence.history) for sequence in sequences], np.int64)
        places = self._take_places(sequences)
        self.sequences = [*self.sequences, *sequences]
        self.row_of = np.concatenate([self.row_of, np.asarray(rows, np.int64)])
        self.num_new = np.concatenate([self.num_new, num_new])
        limits = [sequence.request.sampling.max_new_tokens for sequence in sequences]
        self.limits = np.concatenate([self.limits, np.array(limits, np.int64)])
        keys = np.array([sequence.random_key for sequence in sequences], np.uint64)
        self.random_keys = np.concatenate([self.random_keys, keys])
        self._places = np.concatenate([self._places, places])
        sampling_of = [self._sampling_index(sequence) for sequence in sequences]
        self.sampling_of = np.concatenate([self.sampling_of, sampling_of])

    def add_rows(self, lengths: list[int], newest: list[int]) -> range:
        """Append rows, whose keys and values are still to be written."""
        first = self.num_rows
        if not lengths:
            return range(first, first)
        self.lengths = np.concatenate([self.lengths, np.asarray(lengths, np.int64)])
        self.newest = np.concatenate([self.newest, np.asarray(newest, np.int64)])
        self.pool.reserve(self.num_rows, int(self.lengths.max()))
        return range(first, self.num_rows)

    def take(self, leaving: Bools) -> list[Sequence]:
        """Remove these sequences [B]; each gets its history back. Their rows stay until `regroup`."""
        gone = np.flatnonzero(leaving)
        taken = [self.sequences[i] for i in gone.tolist()]
        for sequence, history in zip(taken, self._histories(gone), strict=True):
            sequence.history = history
            sequence.job.num_tokens = len(history)
        self._free.extend(self._places[gone].tolist())
        stay = ~leaving
        self.sequences = [self.sequences[i] for i in np.flatnonzero(stay).tolist()]
        for name in ("row_of", "num_new", "limits", "random_keys", "sampling_of", "_places"):
            setattr(self, name, getattr(self, name)[stay])
        return taken

    def clear_rows(self) -> None:
        """Forget all rows, after all sequences have left."""
        self.lengths, self.newest = self.lengths[:0], self.newest[:0]
        self.samplings = []

    def tokens_of(self, indices: Ints) -> list[npt.NDArray[np.int32]]:
        """The tokens that these sequences have made; valid until the next token is recorded."""
        pairs = zip(self._places[indices].tolist(), self.num_new[indices].tolist(), strict=True)
        return [self._tokens[place, :end] for place, end in pairs]

    def history_of(self, sequence: Sequence) -> History:
        """A copy of what a running sequence has made."""
        return self._histories(np.array([self.sequences.index(sequence)]))[0]

    # --- a step ---

    def record(self, tokens: Ints, logprobs: npt.NDArray[np.float32]) -> None:
        """Store one more token per sequence."""
        self._grow(0, int(self.num_new.max()) + 1)
        where = (self._places, self.num_new)
        self._tokens[where] = tokens
        self._logprobs[where] = logprobs
        self.num_new += 1

    def regroup(self, tokens: Ints) -> None:
        """Let each sequence's row continue with its token [B] (see `split_rows`); copy what has to be copied."""
        if self.has_own_rows:
            self.newest = tokens
            return
        split = split_rows(self.row_of, tokens)
        lengths = self.lengths[split.parents]
        is_copied = split.places != split.parents
        if is_copied.any():
            self.pool.reserve(max(len(lengths), self.num_rows), int(lengths.max()))
            sources, targets = split.parents[is_copied], split.places[is_copied]
            length = int(self.lengths[sources].max())
            self.pool.copy_rows(torch.from_numpy(sources), torch.from_numpy(targets), length)
        self.lengths, self.newest = np.empty_like(lengths), np.empty_like(lengths)
        self.lengths[split.places], self.newest[split.places] = lengths, split.newest
        self.row_of = split.places[split.member_of]

    def swap(self, first: Ints, second: Ints) -> None:
        """Exchange rows first[i] and second[i], [K] and [K], all different; nothing where the memory is full."""
        if len(first) == 0 or not self.pool.can_swap():
            return
        length = int(self.lengths[np.concatenate([first, second])].max())
        self.pool.swap_rows(torch.from_numpy(first), torch.from_numpy(second), length)
        place = np.arange(self.num_rows)
        place[first], place[second] = second, first
        self.lengths, self.newest, self.row_of = self.lengths[place], self.newest[place], place[self.row_of]

    # --- inside ---

    def _histories(self, indices: Ints) -> list[History]:
        """Copies, in one block for all: one copy per sequence would cost more than the draw that ended it."""
        if len(indices) == 0:
            return []
        places, lengths = self._places[indices], self.num_new[indices]
        longest = int(lengths.max())
        tokens, logprobs = self._tokens[places, :longest], self._logprobs[places, :longest]
        return [History(tokens[i, :t], logprobs[i, :t]) for i, t in enumerate(lengths.tolist())]

    def _sampling_index(self, sequence: Sequence) -> int:
        if sequence.request.sampling not in self.samplings:
            self.samplings.append(sequence.request.sampling)
        return self.samplings.index(sequence.request.sampling)

    def _take_places(self, sequences: list[Sequence]) -> Ints:
        self._grow(len(sequences) - len(self._free), max(len(sequence.history) for sequence in sequences))
        places = np.array([self._free.pop() for _ in sequences], np.int64)
        for place, sequence in zip(places.tolist(), sequences, strict=True):
            if len(sequence.history) > 0:
                made = slice(0, len(sequence.history))
                self._tokens[place, made] = sequence.history.tokens
                self._logprobs[place, made] = sequence.history.logprobs
                sequence.history = EMPTY
        return places

    def _grow(self, num_more: int, length: int) -> None:
        rows, width = self._tokens.shape
        if num_more <= 0 and length <= width:
            return
        more = (
            max(num_more, rows // 2) if num_more > 0 else 0,
            max(32, width, length - width) if length > width else 0,
        )
        self._tokens = np.pad(self._tokens, ((0, more[0]), (0, more[1])))
        self._logprobs = np.pad(self._logprobs, ((0, more[0]), (0, more[1])))
        self._free.extend(range(rows, rows + more[0]))
