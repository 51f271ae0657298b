"""One token per running sequence: who starts, one forward, one draw, who leaves.

    step     _start      preempt, drop rows without sequences, admit from the queue (`_admit` gives each its row)
             _compute    logits of every row: one forward for old rows, and what was just read for new ones
             watch       who is due is shown, and what the watch answers is done
             _draw       one token per sequence; who has finished leaves; rows split where tokens differ

What a caller may ask for is in `engine.py`, the arrays of the batch in `rows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from podsrl.generate.base import BROKEN, Ending, EngineStats
from podsrl.generate.engine.forward.base import Forward, Step
from podsrl.generate.engine.forward.zones import Zones
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.generate.engine.queue import Prefix, PrefixCache, Queue
from podsrl.generate.engine.random_numbers import uniforms_at
from podsrl.generate.engine.rows import Bools, Ints, Rows
from podsrl.generate.engine.sampler import draw_mixed
from podsrl.generate.engine.sequence import Sequence
from podsrl.generate.engine.stop_strings import StopStrings
from podsrl.generate.engine.transfer import to_device, to_host
from podsrl.generate.schedule.job import Job, Limits
from podsrl.generate.schedule.scheduler import Scheduler
from podsrl.lib.watch import Act, Live, Watch

Ended = tuple[Sequence, Ending]
Groups = dict[Prefix, list[Sequence]]
"""Sequences by their tokens so far: one row for each."""

_STOP, _LENGTH, _INVALID = 1, 2, 3
_ENDINGS = {_STOP: Ending("done", "stop"), _LENGTH: Ending("done", "length"), _INVALID: BROKEN}


class Stepper:
    """The running sequences, their memory and their scheduler, for one busy period of the engine.

    `limits` are those of the scheduler. `stop_strings` has a matcher for each `Sampling.stop_strings` in use; the
    engine adds to it. `stats` may be replaced between two steps.
    """

    def __init__(
        self,
        forward: Forward,
        pool: KVPool,
        cache: PrefixCache,
        scheduler: Scheduler,
        limits: Limits,
        *,
        stop_strings: Mapping[tuple[str, ...], StopStrings],
        stats: EngineStats,
        version: int,
    ) -> None:
        self.rows = Rows(pool)
        self.cache = cache
        self.scheduler = scheduler
        self.limits = limits
        self.queue = Queue(scheduler, cache)
        self.stats = stats
        self.has_empty_rows = False
        """Sequences were taken out since the rows were last regrouped."""
        self._forward = forward
        self._pool = pool
        self._device = pool.layout.device
        self._stop_strings = stop_strings
        self._version = version
        self._zones = Zones()
        self._fresh: list[tuple[Tensor, Tensor | None]] = []
        """Logits and hidden states of the rows that were just read, the last `_num_fresh` ones."""
        self._num_fresh = 0
        self._want_hidden = False

    # --- sequences wait, start and leave ---

    @property
    def num_active(self) -> int:
        """Sequences that run or wait."""
        return len(self.rows) + self.scheduler.num_pending

    @property
    def num_free(self) -> int:
        """Slots that are free, that no sequence waits for, and that the memory holds at the present longest row."""
        if self.scheduler.num_pending > 0 or len(self.rows) == 0:
            return 0
        slots = self.limits.num_slots
        if self.limits.num_tokens is not None:
            slots = min(slots, self.limits.num_tokens // (int(self.rows.lengths.max()) + 1))
        return max(0, slots - len(self.rows))

    def add(self, sequences: list[Sequence]) -> None:
        """Let idle sequences wait."""
        for sequence in sequences:
            sequence.move("waiting")
        self.queue.add(sequences)

    def join(self, sequences: list[Sequence], source: Sequence) -> None:
        """Put forks of a running sequence on its row."""
        if sequences:
            row = int(self.rows.row_of[self.rows.sequences.index(source)])
            self._enter(sequences, [row] * len(sequences))

    def take_out(self, sequences: Iterable[Sequence]) -> None:
        """Make waiting and running sequences idle ones."""
        chosen = list(sequences)
        waiting = [sequence for sequence in chosen if sequence.state == "waiting"]
        running = {sequence for sequence in chosen if sequence.state == "running"}
        if waiting:
            self.queue.withdraw(waiting)
            for sequence in waiting:
                sequence.move("idle")
        if running:
            leaving = np.array([sequence in running for sequence in self.rows.sequences], bool)
            for sequence in self._exit(leaving):
                sequence.move("idle")
                if len(sequence.history) == 0:
                    sequence.marks.clear()
            self.has_empty_rows = True

    def use_weights(self, version: int) -> None:
        """Draw from new weights from now on; running rows keep their keys and values, and no kept prompt is used."""
        self._version = version
        self.cache.forget_all()
        for sequence, num_tokens in zip(self.rows.sequences, self.rows.num_new.tolist(), strict=True):
            sequence.mark(num_tokens, version)

    # --- a step ---

    def step(self, watch: Watch | None, obey: Callable[[Iterable[Act]], None]) -> list[Ended]:
        """Let sequences start, show those that are due, draw a token for every running one, and return who ended.

        `obey` does what the watch answers.
        """
        self._start()
        if len(self.rows) == 0:
            self._check_progress()
            return []
        due = self._due(watch)
        self._want_hidden = len(due) > 0
        logits, hidden = self._compute()
        if watch is not None and len(due) > 0:
            obey(watch.look(self._live(due, logits, hidden)))
            if self.has_empty_rows:  # a sequence that left may have had broken numbers
                self._clear_broken(logits, np.arange(self.rows.num_rows))
        return self._draw(logits) if len(self.rows) > 0 else []

    def _due(self, watch: Watch | None) -> Ints:
        """Places of the sequences that the watch is to see now; none is shown twice with as many tokens."""
        if watch is None:
            return np.zeros(0, np.int64)
        is_due = True if watch.at is None else np.isin(self.rows.num_new, list(watch.at))
        places = np.flatnonzero(np.broadcast_to(is_due, len(self.rows))).tolist()
        due = [place for place in places if self.rows.sequences[place].num_shown < self.rows.num_new[place]]
        for place in due:
            self.rows.sequences[place].num_shown = int(self.rows.num_new[place])
        return np.array(due, np.int64)

    def _start(self) -> None:
        if self.scheduler.may_preempt and len(self.rows) > 0:
            jobs = set(self.scheduler.preempt(self._running_jobs()))
            if jobs:
                preempted = [sequence for sequence in self.rows.sequences if sequence.job in jobs]
                self.take_out(preempted)
                self.add(preempted)
        if len(self.rows) == 0:
            self.rows.clear_rows()
        elif self.has_empty_rows:
            self.rows.regroup(self.rows.newest[self.rows.row_of])
        self.has_empty_rows = False
        if self.queue.has_changed and self.scheduler.num_pending > 0:
            self._admit(self.queue.admit(self._running_jobs()))

    def _admit(self, sequences: list[Sequence]) -> None:
        """Give each sequence a row; those with the same tokens so far share one.

        A row is copied from the prompt cache, or read by a forward over prompt and tokens. Both give the logits that
        follow, so it is *fresh*: the next draw needs no forward for it.
        """
        copied, read = Groups(), Groups()
        for sequence in sequences:
            prefix = sequence.prefix
            groups = copied if prefix in self.cache.prompts else read
            groups.setdefault(prefix, []).append(sequence)
        first = self.rows.num_rows
        self._copy_prompts(copied)
        self._read(read)
        self._num_fresh = self.rows.num_rows - first
        self.queue.forget_prompts(sequences)

    def _copy_prompts(self, groups: Groups) -> None:
        rows = self._add_rows(groups, [len(prefix) for prefix in groups])
        for row, prompt in zip(rows, groups, strict=True):
            kept = self.cache.prompts[prompt]
            self._pool.restore_row(kept, row)
            self._fresh.append((kept.logits[None], kept.hidden[None]))

    def _read(self, groups: Groups) -> None:
        if not groups:
            return
        rows = self._add_rows(groups, [len(prefix) for prefix in groups])
        read = self._forward.read(list(groups), self._pool, rows)
        self._fresh.append((read.logits, read.hidden))
        stats = self.stats
        for i, (prefix, members) in enumerate(groups.items()):
            num_prompt = len(members[0].request.prompt_ids)
            stats.prompt_tokens += num_prompt
            stats.recomputed_tokens += len(prefix) - num_prompt
            if self.queue.is_wanted(prefix):
                self.cache.keep(prefix, self._pool, rows[i], read.logits[i], read.hidden[i])

    def _add_rows(self, groups: Groups, lengths: list[int]) -> range:
        rows = self.rows.add_rows(lengths, [prefix[-1] for prefix in groups])
        for row, members in zip(rows, groups.values(), strict=True):
            self._enter(members, [row] * len(members))
        return rows

    def _compute(self) -> tuple[Tensor, Tensor | None]:
        """Logits [R, V] after the newest token of every row, and the hidden states [R, D] where wanted."""
        rows, parts = self.rows, list[tuple[Tensor, Tensor | None]]()
        num_old = rows.num_rows - self._num_fresh
        if num_old > 0:
            parts.append(self._decode(num_old))
            rows.lengths[:num_old] += 1
        parts += self._fresh
        self._fresh, self._num_fresh = [], 0
        stats = self.stats
        stats.rows_used = max(stats.rows_used, rows.num_rows)
        stats.slots_used = max(stats.slots_used, len(rows))
        if len(parts) == 1:
            return parts[0]
        hidden = [part for _, part in parts if part is not None]
        return torch.cat([part for part, _ in parts]), torch.cat(hidden) if len(hidden) == len(parts) else None

    def _decode(self, num_rows: int) -> tuple[Tensor, Tensor | None]:
        """One forward for rows 0 .. num_rows - 1."""
        if self._forward.name == "fast":
            self.rows.swap(*self._zones.plan(self.rows.lengths[:num_rows] + 1))
        lengths = self.rows.lengths[:num_rows]
        length = int(lengths.max()) + 1
        self._pool.reserve(self.rows.num_rows, length)
        tokens, positions = to_device(self._device, self.rows.newest[:num_rows], lengths.copy())
        self.stats.forwarded += num_rows
        is_even = int(lengths.min()) + 1 == length
        zones = () if is_even else self._zones.at(lengths + 1)
        output = self._forward(Step(tokens, positions, length, is_even, zones, self._want_hidden), self._pool)
        return output.logits, output.hidden

    # --- the draw ---

    def _draw(self, logits: Tensor) -> list[Ended]:
        rows = self.rows
        uniforms = uniforms_at(rows.random_keys, rows.num_new)
        given = to_device(logits.device, uniforms, *(() if rows.has_own_rows else (rows.row_of,)))
        drawn = draw_mixed(logits, given[1] if len(given) > 1 else None, given[0], rows.samplings, rows.sampling_of)
        tokens, logprobs = to_host(*drawn)
        rows.record(tokens, logprobs)
        self.stats.steps += 1
        self.stats.tokens += len(tokens)
        reasons = self._reasons(tokens, logprobs)
        done = reasons > 0
        ended = list[Ended]()
        if done.any():
            self._clear_broken(logits, np.unique(rows.row_of[reasons == _INVALID]))
            ended = self._finish(done, reasons)
        if len(rows) > 0:
            rows.regroup(tokens[~done] if ended else tokens)
        else:
            rows.clear_rows()
        return ended

    def _reasons(self, tokens: Ints, logprobs: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
        """[B] why each sequence ends with this token; 0 where it goes on."""
        rows = self.rows
        reasons = np.zeros(len(rows), np.int8)
        reasons[rows.num_new >= rows.limits] = _LENGTH
        for i, sampling in enumerate(rows.samplings):
            if sampling.stop_token_ids:
                is_stop = (tokens[:, None] == np.array(sampling.stop_token_ids)).any(axis=1)
                reasons[is_stop & (rows.sampling_of == i)] = _STOP
            if sampling.stop_strings:
                reasons[self._hits_stop_string(i)] = _STOP
        reasons[np.isnan(logprobs)] = _INVALID
        return reasons

    def _finish(self, done: Bools, reasons: npt.NDArray[np.int8]) -> list[Ended]:
        ended = list[Ended]()
        for sequence, reason in zip(self._exit(done), reasons[done].tolist(), strict=True):
            if reason == _INVALID:  # the token drawn from broken logits is no token of the policy's
                sequence.history = sequence.history.first(-1)
            sequence.move("ended")
            self.scheduler.finish(sequence.job)
            ended.append((sequence, _ENDINGS[reason]))
        return ended

    def _clear_broken(self, logits: Tensor, rows: Ints) -> None:
        """Zero those of the rows whose logits are no numbers.

        Broken keys and values would reach their row's next user: masked attention still multiplies them by 0.
        """
        if len(rows) == 0:
            return
        places = torch.from_numpy(rows).to(self._device)
        own = logits[places]
        self._pool.clear_rows(places[(own.isnan() | (own == torch.inf)).any(dim=1)])

    def _hits_stop_string(self, sampling_index: int) -> Bools:
        """[B] whether a sequence of this sampling has just completed one of its stop strings."""
        stop = self._stop_strings[self.rows.samplings[sampling_index].stop_strings]
        of_sampling = np.flatnonzero(self.rows.sampling_of == sampling_index)
        hits = np.zeros(len(self.rows), bool)
        given = [self.rows.sequences[i].given for i in of_sampling]  # text up to there is read, as the prompt's is
        tokens = self.rows.tokens_of(of_sampling)
        hits[of_sampling] = stop.hits([own[of[-1][1] :] if of else own for own, of in zip(tokens, given, strict=True)])
        return hits

    # --- what scheduler and watch see ---

    def _live(self, members: Ints, logits: Tensor, hidden: Tensor | None) -> Live:
        assert hidden is not None, "wanted"
        row_of = torch.from_numpy(self.rows.row_of[members]).to(logits.device)
        sequences = [self.rows.sequences[i] for i in members.tolist()]
        keys = [sequence.key for sequence in sequences]
        places = dict(zip(keys, members.tolist(), strict=True))
        return Live(
            keys=keys,
            num_tokens=self.rows.num_new[members].tolist(),
            random_keys=self.rows.random_keys[members],
            row_of=row_of,
            logits=logits,
            hidden=hidden,
            notes=[sequence.notes for sequence in sequences],
            tokens=lambda key: self.rows.tokens_of(np.array([places[key]]))[0].copy(),
            stop_ids=frozenset().union(*(sampling.stop_token_ids or () for sampling in self.rows.samplings)),
        )

    def _running_jobs(self) -> list[Job]:
        for sequence, num_tokens in zip(self.rows.sequences, self.rows.num_new.tolist(), strict=True):
            sequence.job.num_tokens = num_tokens
        return [sequence.job for sequence in self.rows.sequences]

    def _check_progress(self) -> None:
        if self.scheduler.num_pending > 0:
            raise RuntimeError(
                f"scheduler {type(self.scheduler).__name__} starts none of its {self.scheduler.num_pending} pending "
                "jobs though nothing runs"
            )

    # --- enter and exit ---

    def _enter(self, sequences: list[Sequence], rows: list[int]) -> None:
        for sequence in sequences:
            sequence.mark(len(sequence.history), self._version)
        self.rows.add(sequences, rows)
        for sequence in sequences:
            sequence.move("running")

    def _exit(self, leaving: Bools) -> list[Sequence]:
        sequences = self.rows.take(leaving)
        self.queue.has_changed = True
        return sequences
