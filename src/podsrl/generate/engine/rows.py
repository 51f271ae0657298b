"""The rollouts being generated and the rows of the model's batch they stand on.

Rollouts with the same tokens so far are one row: the model reads those tokens once for all of them. When they draw
different tokens the row splits, and every new row but one gets a copy of the keys and values. A rollout's random
numbers depend on its own name alone, so its tokens are those it would have drawn on a row of its own.

    rollouts  B live ones, in arrays of B entries; `row_of[b]` is the row of rollout b
    rows      R <= B; row r has `lengths[r]` tokens in the pool and `newest[r]` still to be read
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from podsrl.generate.base import Sampling
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.generate.engine.sequence import EMPTY, History, Run

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Batch:
    """B live rollouts on R rows of a pool."""

    def __init__(self, pool: KVPool) -> None:
        self.pool = pool
        self.runs: list[Run] = []
        self.row_of: Ints = np.zeros(0, np.int64)  # [B]
        self.num_new: Ints = np.zeros(0, np.int64)  # [B] tokens made
        self.limits: Ints = np.zeros(0, np.int64)  # [B] tokens it may make
        self.random_keys: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)  # [B]
        self.samplings: list[Sampling] = []  # the distinct ones
        self.sampling_of: Ints = np.zeros(0, np.int64)  # [B] index into them
        self.lengths: Ints = np.zeros(0, np.int64)  # [R]
        self.newest: Ints = np.zeros(0, np.int64)  # [R]
        self._places: Ints = np.zeros(0, np.int64)  # [B] where in the store its tokens are
        self._store = History(np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float32))  # one row per place
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    @property
    def has_own_rows(self) -> bool:
        """Whether rollout b stands alone on row b."""
        return self.num_rows == len(self.runs) and bool((self.row_of == np.arange(self.num_rows)).all())

    # --- rollouts come and go ---

    def add(self, runs: Sequence[Run], rows: Sequence[int]) -> None:
        """Let runs join, each on its row."""
        if not runs:
            return
        num_new = np.array([len(run.history) for run in runs], np.int64)
        places = self._take_places(runs)
        self.runs = [*self.runs, *runs]
        self.row_of = np.concatenate([self.row_of, np.asarray(rows, np.int64)])
        self.num_new = np.concatenate([self.num_new, num_new])
        limits = [run.request.sampling.max_new_tokens for run in runs]
        self.limits = np.concatenate([self.limits, np.array(limits, np.int64)])
        keys = np.array([run.random_key for run in runs], np.uint64)
        self.random_keys = np.concatenate([self.random_keys, keys])
        self._places = np.concatenate([self._places, places])
        self.sampling_of = np.concatenate([self.sampling_of, [self._sampling_index(run) for run in runs]])
        for run in runs:
            run.state = "live"

    def add_rows(self, lengths: Sequence[int], newest: Sequence[int]) -> range:
        """New rows behind the others, their keys and values still to be written."""
        first = self.num_rows
        if not lengths:
            return range(first, first)
        self.lengths = np.concatenate([self.lengths, np.asarray(lengths, np.int64)])
        self.newest = np.concatenate([self.newest, np.asarray(newest, np.int64)])
        self.pool.reserve(self.num_rows, int(self.lengths.max()))
        return range(first, self.num_rows)

    def take(self, leaving: Bools) -> list[Run]:
        """Remove these rollouts [B]; each run gets its history back. Their rows stay until `regroup`."""
        gone = np.flatnonzero(leaving)
        taken = [self.runs[i] for i in gone.tolist()]
        for run, history in zip(taken, self._histories(gone), strict=True):
            run.history = history
            run.job.num_tokens = len(history)
        self._free.extend(self._places[gone].tolist())
        stay = ~leaving
        self.runs = [self.runs[i] for i in np.flatnonzero(stay).tolist()]
        for name in ("row_of", "num_new", "limits", "random_keys", "sampling_of", "_places"):
            setattr(self, name, getattr(self, name)[stay])
        return taken

    def clear_rows(self) -> None:
        """Forget the rows of rollouts that have all left."""
        self.lengths, self.newest = self.lengths[:0], self.newest[:0]
        self.samplings = []

    def tokens_of(self, indices: Ints) -> list[npt.NDArray[np.int32]]:
        """What these rollouts have made, to be looked at before the next token is recorded."""
        pairs = zip(self._places[indices].tolist(), self.num_new[indices].tolist(), strict=True)
        return [self._store.tokens[place, :end] for place, end in pairs]

    def mean_logprobs(self, indices: Ints) -> npt.NDArray[np.float32]:
        """Mean log-probability of the tokens so far of these rollouts, 0 where there are none."""
        histories = self._histories(indices)
        return np.array([h.logprobs.mean() if len(h) else 0.0 for h in histories], np.float32)

    def history_of(self, run: Run) -> History:
        """A copy of what a live run has made."""
        return self._histories(np.array([self.runs.index(run)]))[0]

    def prefix_of_row(self, row: int) -> tuple[int, ...]:
        """All tokens of a row, the newest included."""
        member = int(np.flatnonzero(self.row_of == row)[0])
        run = self.runs[member]
        return run.request.prompt_ids + tuple(self._histories(np.array([member]))[0].tokens.tolist())

    # --- a step ---

    def record(self, tokens: Ints, logprobs: npt.NDArray[np.float32]) -> None:
        """Store one more token per rollout."""
        self._grow(0, int(self.num_new.max()) + 1)
        where = (self._places, self.num_new)
        self._store.tokens[where] = tokens
        self._store.logprobs[where] = logprobs
        self.num_new += 1

    def regroup(self, tokens: Ints) -> None:
        """Split rows whose rollouts stand at different newest tokens [B]; drop empty rows; close ranks.

        A row's first part keeps its place where that lies below the new number of rows, so what is copied is one row a
        split or a hole.
        """
        num_values = int(tokens.max()) + 1 if len(tokens) else 1
        keys, members = np.unique(self.row_of * num_values + tokens, return_inverse=True)
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
            self.pool.reserve(max(num_rows, self.num_rows), int(self.lengths[parents].max()))
            self._copy(parents[~stays], places[~stays])
        lengths = self.lengths[parents]
        self.lengths, self.newest = np.empty_like(lengths), np.empty_like(lengths)
        self.lengths[places], self.newest[places] = lengths, newest
        self.row_of = places[members]

    def swap(self, first: Ints, second: Ints) -> None:
        """Let rows first[i] and second[i] change places, [K] and [K], all different; not where memory is full."""
        if len(first) == 0 or not self.pool.can_swap():
            return
        length = int(self.lengths[np.concatenate([first, second])].max())
        self.pool.swap_rows(torch.from_numpy(first), torch.from_numpy(second), length)
        place = np.arange(self.num_rows)
        place[first], place[second] = second, first
        self.lengths, self.newest, self.row_of = self.lengths[place], self.newest[place], place[self.row_of]

    def newest_of_rollouts(self) -> Ints:
        """[B] the token each rollout's row still has to read."""
        return self.newest[self.row_of]

    # --- inside ---

    def _copy(self, sources: Ints, targets: Ints) -> None:
        length = int(self.lengths[sources].max())
        self.pool.copy_rows(torch.from_numpy(sources), torch.from_numpy(targets), length)

    def _histories(self, indices: Ints) -> list[History]:
        """Copies, in one block for all: a copy a rollout would cost more than the draw that ended it."""
        if len(indices) == 0:
            return []
        places, lengths = self._places[indices], self.num_new[indices]
        longest, store = int(lengths.max()), self._store
        tokens, logprobs = store.tokens[places, :longest], store.logprobs[places, :longest]
        return [History(tokens[i, :t], logprobs[i, :t]) for i, t in enumerate(lengths.tolist())]

    def _sampling_index(self, run: Run) -> int:
        if run.request.sampling not in self.samplings:
            self.samplings.append(run.request.sampling)
        return self.samplings.index(run.request.sampling)

    def _take_places(self, runs: Sequence[Run]) -> Ints:
        self._grow(len(runs) - len(self._free), max(len(run.history) for run in runs))
        places = np.array([self._free.pop() for _ in runs], np.int64)
        for place, run in zip(places.tolist(), runs, strict=True):
            if len(run.history) > 0:
                made = slice(0, len(run.history))
                self._store.tokens[place, made] = run.history.tokens
                self._store.logprobs[place, made] = run.history.logprobs
                run.history = EMPTY
        return places

    def _grow(self, num_more: int, length: int) -> None:
        rows, width = self._store.tokens.shape
        if num_more <= 0 and length <= width:
            return
        more = (
            max(num_more, rows // 2) if num_more > 0 else 0,
            max(32, width, length - width) if length > width else 0,
        )
        for name in ("tokens", "logprobs"):
            setattr(self._store, name, np.pad(getattr(self._store, name), ((0, more[0]), (0, more[1]))))
        self._free.extend(range(rows, rows + more[0]))
