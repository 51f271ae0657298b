"""One busy period of the engine, step by step: who starts, one forward, one draw, who leaves.

What may be asked from outside, and the life of a run from call to call, is in `engine.py`; the arrays in `batch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from podsrl.generate.engine.forward.base import Forward
from podsrl.generate.engine.forward.zones import Zones
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.generate.engine.prefix_cache import Prefix, Shelf, put_back
from podsrl.generate.engine.queue import Waiting
from podsrl.generate.engine.random_numbers import uniforms_at
from podsrl.generate.engine.rows import Batch, Bools, Ints
from podsrl.generate.engine.sampler import draw_mixed
from podsrl.generate.engine.sequence import Run
from podsrl.generate.engine.steering import StepView
from podsrl.generate.engine.stop_strings import StopStrings
from podsrl.generate.engine.transfer import to_device, to_host
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.scheduler import Limits, Scheduler
from podsrl.generate.stats import EngineStats, Span
from podsrl.types import FinishReason

Ended = tuple[Run, FinishReason]
Hook = Callable[[StepView], None]

_STOP, _LENGTH, _INVALID = 1, 2, 3
_REASONS: dict[int, FinishReason] = {_STOP: "stop", _LENGTH: "length", _INVALID: "invalid"}


class Core:
    """The live rollouts, their memory and their scheduler."""

    def __init__(
        self,
        forward: Forward,
        pool: KVPool,
        shelf: Shelf,
        scheduler: Scheduler,
        limits: Limits,
    ) -> None:
        self.batch = Batch(pool)
        self.shelf = shelf
        self.scheduler = scheduler
        self.limits = limits
        self.stats = EngineStats()
        self.trace: list[Span] | None = None
        self.version = 0
        self.waiting = Waiting(scheduler, shelf)
        self.must_reread = False
        """Set when the weights have changed under live rows: their keys and values are made anew."""
        self.stop_strings: dict[tuple[str, ...], StopStrings] = {}
        self._forward = forward
        self._pool = pool
        self._device = pool.layout.device
        self._zones = Zones()
        self._spans: dict[Run, Span] = {}
        self._fresh: list[tuple[Tensor, Tensor | None]] = []  # logits, hidden of rows that were just read
        self._num_fresh = 0  # the last rows of the batch: no forward needed before their first draw
        self._has_empty_rows = False
        self._want_hidden = False

    # --- runs wait, start and leave ---

    @property
    def num_active(self) -> int:
        """Rollouts that are live or wait."""
        return len(self.batch) + self.scheduler.num_pending

    @property
    def num_free(self) -> int:
        """Slots that nobody has or waits for, and that the memory holds at today's longest row."""
        if self.scheduler.num_pending > 0 or len(self.batch) == 0:
            return 0
        slots = self.limits.num_slots
        if self.limits.num_tokens is not None:
            slots = min(slots, self.limits.num_tokens // (int(self.batch.lengths.max()) + 1))
        return max(0, slots - len(self.batch))

    def join(self, runs: Sequence[Run], source: Run) -> None:
        """Let forks of a live run stand on its row."""
        if runs:
            row = int(self.batch.row_of[self.batch.runs.index(source)])
            self._enter(runs, [row] * len(runs))

    def leave(self, runs: Iterable[Run], *, keep_kv: bool = False) -> None:
        """Take live runs out of the batch; their histories come back to them, and their memory where it is kept."""
        chosen = set(runs)
        leaving = np.array([run in chosen for run in self.batch.runs], bool)
        rows = self.batch.row_of[leaving].tolist()
        for run, row in zip(self._exit(leaving), rows, strict=True):
            # the newest token is read again, so that a row comes back to where its next forward starts
            length = len(run.request.prompt_ids) + len(run.history) - 1
            if keep_kv and length > 0 and not self.must_reread:
                run.kept = self.shelf.keep(self._pool, row, length)
            if len(run.history) == 0:
                run.marks.clear()
        self._has_empty_rows = True

    # --- the step ---

    def step(self, hooks: Sequence[Hook]) -> list[Ended]:
        """Draw one token for every live rollout, after letting new ones start. Returns who ended."""
        probe_at = self.scheduler.probe_at
        self._want_hidden = bool(hooks) or probe_at is not None
        self._start()
        if len(self.batch) == 0:
            self._check_progress()
            return []
        logits, hidden = self._compute()
        if hidden is not None:
            if probe_at == 0:
                self._observe(probe_at, logits, hidden)
            for hook in hooks:
                hook(self._view(logits, hidden))
            if self._has_empty_rows:  # who left may have been broken
                self._clear_broken(logits, np.arange(self.batch.num_rows))
        return self._draw(logits, hidden) if len(self.batch) > 0 else []

    def _start(self) -> None:
        if self.scheduler.may_evict and len(self.batch) > 0:
            jobs = set(self.scheduler.evict(self._live_jobs()))
            if jobs:
                runs = [run for run in self.batch.runs if run.job in jobs]
                self.leave(runs)
                self.waiting.add(runs)
        if self._has_empty_rows and len(self.batch) > 0:
            self.batch.regroup(self.batch.newest_of_rollouts())
        elif len(self.batch) == 0:
            self.batch.clear_rows()
        self._has_empty_rows = False
        if self.waiting.has_changed and self.scheduler.num_pending > 0:
            self._admit(self.waiting.admit(self._live_jobs()))

    def _admit(self, runs: Sequence[Run]) -> None:
        """Give each run a row: from its own kept memory, from a shared prompt's, or by reading its tokens."""
        restored, shelved, unread = dict[Prefix, list[Run]](), dict[Prefix, list[Run]](), dict[Prefix, list[Run]]()
        for run in runs:
            prefix = run.prefix
            place = restored if run.kept else shelved if prefix in self.shelf.prompts else unread
            place.setdefault(prefix, []).append(run)
        self._restore(restored)
        first = self.batch.num_rows
        self._copy_prompts(shelved)
        self._read(unread)
        self._num_fresh = self.batch.num_rows - first
        self.waiting.forget_prompts(runs)

    def _restore(self, groups: dict[Prefix, list[Run]]) -> None:
        rows = self._add_rows(groups, [len(prefix) - 1 for prefix in groups])
        for row, members in zip(rows, groups.values(), strict=True):
            kept = members[0].kept
            assert kept is not None
            put_back(kept, self._pool, row)
            for run in members:
                self.shelf.discard(run.kept)
                run.kept = None

    def _copy_prompts(self, groups: dict[Prefix, list[Run]]) -> None:
        rows = self._add_rows(groups, [len(prefix) for prefix in groups])
        for row, prompt in zip(rows, groups, strict=True):
            kept = self.shelf.prompts[prompt]
            put_back(kept, self._pool, row)
            assert kept.logits is not None
            self._fresh.append((kept.logits[None], None if kept.hidden is None else kept.hidden[None]))

    def _read(self, groups: dict[Prefix, list[Run]]) -> None:
        if not groups:
            return
        rows = self._add_rows(groups, [len(prefix) for prefix in groups])
        read = self._forward.read(list(groups), self._pool, rows)
        self._fresh.append((read.logits, read.hidden))
        for i, (prefix, members) in enumerate(groups.items()):
            num_prompt = len(members[0].request.prompt_ids)
            self.stats.prompt_tokens += num_prompt
            self.stats.reread_tokens += len(prefix) - num_prompt
            if self.waiting.is_wanted(prefix):
                kept = self.shelf.keep(self._pool, rows[i], len(prefix), read.logits[i], read.hidden[i])
                if kept is not None:
                    self.shelf.prompts[prefix] = kept

    def _add_rows(self, groups: dict[Prefix, list[Run]], lengths: Sequence[int]) -> range:
        rows = self.batch.add_rows(lengths, [prefix[-1] for prefix in groups])
        for row, members in zip(rows, groups.values(), strict=True):
            self._enter(members, [row] * len(members))
        return rows

    def _compute(self) -> tuple[Tensor, Tensor | None]:
        """Logits [R, V] after the newest token of every row, and the hidden states [R, D] where wanted."""
        batch, parts = self.batch, list[tuple[Tensor, Tensor | None]]()
        if self.must_reread:
            for run, num_tokens in zip(batch.runs, batch.num_new.tolist(), strict=True):
                run.mark(num_tokens, self.version)
        num_old = batch.num_rows - self._num_fresh
        if num_old > 0:
            parts.append(self._reread(num_old) if self.must_reread else self._decode(num_old))
            batch.lengths[:num_old] += 1
        parts += self._fresh
        self._fresh, self._num_fresh, self.must_reread = [], 0, False
        self.stats.rows_used = max(self.stats.rows_used, batch.num_rows)
        self.stats.slots_used = max(self.stats.slots_used, len(batch))
        if len(parts) == 1:
            return parts[0]
        hidden = [part for _, part in parts if part is not None]
        return torch.cat([part for part, _ in parts]), torch.cat(hidden) if len(hidden) == len(parts) else None

    def _decode(self, num_rows: int) -> tuple[Tensor, Tensor | None]:
        if self._forward.name == "fast":
            self.batch.swap(*self._zones.plan(self.batch.lengths[:num_rows] + 1))
        lengths = self.batch.lengths[:num_rows]
        length = int(lengths.max()) + 1
        self._pool.reserve(self.batch.num_rows, length)
        tokens, positions = to_device(self._device, self.batch.newest[:num_rows], lengths.copy())
        self.stats.forwarded += num_rows
        is_even = int(lengths.min()) + 1 == length
        output = self._forward(
            tokens,
            positions,
            self._pool,
            length,
            is_even=is_even,
            zones=() if is_even else self._zones.at(lengths + 1),
            want_hidden=self._want_hidden,
        )
        return output.logits, output.hidden

    def _reread(self, num_rows: int) -> tuple[Tensor, Tensor | None]:
        prefixes = [self.batch.prefix_of_row(row) for row in range(num_rows)]
        self._pool.reserve(self.batch.num_rows, max(map(len, prefixes)))
        self.stats.reread_tokens += sum(map(len, prefixes))
        read = self._forward.read(prefixes, self._pool, range(num_rows))
        return read.logits, read.hidden

    # --- the draw ---

    def _draw(self, logits: Tensor, hidden: Tensor | None) -> list[Ended]:
        batch = self.batch
        uniforms = uniforms_at(batch.random_keys, batch.num_new)
        given = to_device(logits.device, uniforms, *(() if batch.has_own_rows else (batch.row_of,)))
        drawn = draw_mixed(logits, given[1] if len(given) > 1 else None, given[0], batch.samplings, batch.sampling_of)
        tokens, logprobs = to_host(*drawn)
        batch.record(tokens, logprobs)
        self.stats.steps += 1
        self.stats.tokens += len(tokens)
        reasons = self._reasons(tokens, logprobs)
        done = reasons > 0
        self._clear_broken(logits, np.unique(batch.row_of[reasons == _INVALID]))
        ended = self._end(done, reasons) if done.any() else []
        if self.scheduler.probe_at and hidden is not None:
            self._observe(self.scheduler.probe_at, logits, hidden)
        if len(batch) > 0:
            batch.regroup(tokens[~done] if ended else tokens)
        else:
            batch.clear_rows()
        return ended

    def _reasons(self, tokens: Ints, logprobs: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
        batch = self.batch
        reasons = np.zeros(len(batch), np.int8)
        reasons[batch.num_new >= batch.limits] = _LENGTH
        for i, sampling in enumerate(batch.samplings):
            if sampling.stop_token_ids:
                is_stop = np.isin(tokens, sampling.stop_token_ids)
                reasons[is_stop & (batch.sampling_of == i)] = _STOP
            if sampling.stop_strings:
                reasons[self._hits_stop_string(i)] = _STOP
        reasons[np.isnan(logprobs)] = _INVALID
        return reasons

    def _end(self, done: Bools, reasons: npt.NDArray[np.int8]) -> list[Ended]:
        ended = list[Ended]()
        for run, reason in zip(self._exit(done), reasons[done].tolist(), strict=True):
            if reason == _INVALID:  # the token drawn from broken logits is no token of the policy's
                run.history = run.history.shortened()
            run.state = "ended"
            self.scheduler.finish(run.job)
            ended.append((run, _REASONS[reason]))
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
        """[B] whether a rollout of this sampling has just completed one of its stop strings."""
        stop = self.stop_strings[self.batch.samplings[sampling_index].stop_strings]
        of_sampling = np.flatnonzero(self.batch.sampling_of == sampling_index)
        hits = np.zeros(len(self.batch), bool)
        hits[of_sampling] = stop.hits(self.batch.tokens_of(of_sampling))
        return hits

    # --- what others see ---

    def _observe(self, probe_at: int, logits: Tensor, hidden: Tensor) -> None:
        """Show the scheduler the live rollouts that have just made `probe_at` tokens: what the last was drawn from."""
        batch = self.batch
        members = np.flatnonzero(batch.num_new == probe_at)
        if len(members) == 0:
            return
        view = self._view(logits, hidden)
        rows = view.row_of[torch.from_numpy(members).to(hidden.device)]
        means = torch.from_numpy(batch.mean_logprobs(members)).to(hidden.device)
        columns = [hidden[rows].float(), means[:, None], view.entropies[rows][:, None]]
        features = torch.cat(columns, dim=1).cpu().numpy()
        jobs = [batch.runs[i].job for i in members.tolist()]
        for job in jobs:
            job.num_tokens = probe_at
        self.scheduler.observe(jobs, features)

    def _view(self, logits: Tensor, hidden: Tensor) -> StepView:
        batch = self.batch
        rows = torch.from_numpy(batch.row_of).to(logits.device)
        return StepView([run.key for run in batch.runs], batch.num_new.tolist(), rows, logits, hidden)

    def _live_jobs(self) -> list[Job]:
        for run, num_tokens in zip(self.batch.runs, self.batch.num_new.tolist(), strict=True):
            run.job.num_tokens = num_tokens
        return [run.job for run in self.batch.runs]

    def _check_progress(self) -> None:
        if self.scheduler.num_pending > 0:
            raise RuntimeError(
                f"scheduler {type(self.scheduler).__name__} starts none of its {self.scheduler.num_pending} pending "
                "jobs though nothing runs"
            )

    # --- enter and exit ---

    def _enter(self, runs: Sequence[Run], rows: Sequence[int]) -> None:
        if not self.must_reread:  # else `_compute` does it, and before that a hook may still draw from older weights
            for run in runs:
                run.mark(len(run.history), self.version)
        self.batch.add(runs, rows)
        if self.trace is not None:
            for run in runs:
                self._spans[run] = Span(run.request.id, run.index, self.stats.steps, self.stats.steps)
                self.trace.append(self._spans[run])

    def _exit(self, leaving: Bools) -> list[Run]:
        runs = self.batch.take(leaving)
        self.waiting.has_changed = True
        for run in runs:
            if run in self._spans:
                self._spans.pop(run).end = self.stats.steps
        return runs
