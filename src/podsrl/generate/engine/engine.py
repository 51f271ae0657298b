"""The in-process engine: requests -> completions, by continuous batching on one model.

A step, in order (core.py):

    start     the scheduler names the rollouts that start now; each distinct prompt is read once
    forward   one token a row, for all rows; rollouts with the same tokens so far share a row (batch.py)
    draw      one token a rollout
    leave     finished rollouts are handed out; rows split where their rollouts differ, and close ranks

Any Hugging Face decoder that keeps full keys and values runs on it. Weights are used in place: a trainer that updates
the same model has nothing to copy. Whatever the slots, the schedule and the steering, a rollout gets the tokens it
would get alone (in float32; in bfloat16 a sum may round differently with the batch, and so may a token).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.generate.base import Request
from podsrl.generate.engine.check import check_requests
from podsrl.generate.engine.forward.base import Forward, choose_forward
from podsrl.generate.engine.forward.families import why_not_fast
from podsrl.generate.engine.kv_memory import KVMemory
from podsrl.generate.engine.limits import MemoryPlan, plan_memory
from podsrl.generate.engine.prefix_cache import Shelf
from podsrl.generate.engine.sequence import Ids, Key, Run, State, find_runs, new_runs
from podsrl.generate.engine.stepper import Core, Ended, Hook
from podsrl.generate.engine.stop_strings import StopStrings
from podsrl.generate.engine.weights import take_weights
from podsrl.generate.schedule.lengths import Predictor
from podsrl.generate.schedule.scheduler import Limits, Scheduler, default_predictor, make_scheduler
from podsrl.generate.stats import EngineStats, Span
from podsrl.lib.torch_model import evaluating
from podsrl.types import Completion

ABILITIES = frozenset({"join", "abort_rollouts", "pause", "fork", "hooks"})
"""What this generator can do beyond the least that `Generator` asks for."""
_NO_BOUND = 1 << 31


class Engine:
    """Generates completions for requests from one model.

    Args:
        model: a Hugging Face causal language model; used in place, on its own device.
        num_slots: most rollouts alive at once; None: as many as `kv_cache_bytes` holds, or all.
        kv_cache_bytes: bound of all key-value memory held at any time: of rows, shared prompts, paused rollouts, and
            what moving them takes; None: no bound.
        scheduler: "full", "micro", "continuous", "probed" or "dynamic", perhaps with a refill order
            ("continuous+ljf"), or an object of your own (see schedule/scheduler.py).
        predictor: of lengths, for the refill orders that use one; None: the scheduler's default.
        seed: with a request's id, a rollout's index and a token's position it decides every random number, so the same
            request gives the same tokens in any batch.
        tokenizer: needed only for requests with stop strings.
        forward: "fast" or "model" to insist on one of the decode steps; None: the fast one where it covers the model.

    Raises:
        UsageError: an argument out of range, or a model that cannot be run.

    Example:
        >>> engine = Engine(model, seed=1)                                     # doctest: +SKIP
        >>> [c.token_ids for c in engine.generate([Request("a", (5, 7), 2)])]  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        *,
        num_slots: int | None = None,
        kv_cache_bytes: int | None = None,
        scheduler: str | Scheduler = "continuous",
        predictor: Predictor | None = None,
        seed: int = 0,
        tokenizer: Any = None,
        forward: Literal["fast", "model"] | None = None,
    ) -> None:
        if num_slots is not None and num_slots < 1:
            raise UsageError(f"num_slots = {num_slots}: wanted at least 1, or None for no limit")
        if kv_cache_bytes is not None and kv_cache_bytes < 1:
            raise UsageError(f"kv_cache_bytes = {kv_cache_bytes}: wanted at least 1, or None for no bound")
        make_scheduler(scheduler, Limits(num_slots=1, num_tokens=1), predictor)  # a wrong name is told now
        self.model = model
        self.abilities = ABILITIES
        self.num_slots = num_slots
        self.kv_cache_bytes = kv_cache_bytes
        self.seed = seed
        self.version = 0
        self.peak_kv_bytes = 0
        """Largest key-value memory held so far while rollouts ran, in bytes; set it to 0 to measure anew."""
        self.stats = EngineStats()
        self.trace: list[Span] | None = None
        """Set it to a list before a call, and every stay of a rollout in the batch is appended."""
        self.hooks: list[Hook] = []
        """Called in every step between forward and draw, with a `StepView`; they may use all verbs."""
        self.memory: MemoryPlan | None = None
        """What the last call's memory was divided into."""
        self.forward: Forward = choose_forward(model, forward)
        """The decode step; `forward.name` is "fast" or "model"."""
        self._forward_option = forward
        self._scheduler_option, self._tokenizer = scheduler, tokenizer
        self._predictor = predictor
        if predictor is None and isinstance(scheduler, str):
            self._predictor = default_predictor(scheduler)  # one for all calls, since it learns
        self._scheduler: Scheduler | None = None
        self._scheduler_limits: Limits | None = None
        self._kv_memory = KVMemory(kv_cache_bytes)
        self._stop_strings: dict[tuple[str, ...], StopStrings] = {}
        self._runs: dict[str, list[Run]] = {}  # unfinished ones by request id
        self._core: Core | None = None
        self._ended: list[Ended] = []  # by a verb, handed out with the next step
        self._num_arrived = 0
        self._own: set[str] | None = None  # request ids of the open call of `generate`

    # --- to generate ---

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Yield every completion as it finishes, until only paused rollouts are left.

        A consumer that stops early ends the call's unpaused rollouts without completions.

        Raises:
            UsageError: another call is open (use `submit` to add to it); or, before anything is generated: a repeated
                id, a prompt that with its limit exceeds the model's window, a request that can never fit in
                `kv_cache_bytes`, stop strings without a tokenizer.
        """
        wanted = list(requests)
        self._check(wanted)
        return self._generate(wanted)

    def submit(self, requests: Iterable[Request]) -> None:
        """Let requests wait for the next `step`; also while others run.

        Raises:
            UsageError: as `generate`.
        """
        wanted = list(requests)
        self._check(wanted)
        for request in wanted:
            self._runs[request.id] = self._new_runs(request)
        try:
            self._enqueue([run for request in wanted for run in self._runs[request.id]])
        except BaseException:
            for request in wanted:
                self._runs.pop(request.id, None)
            raise

    def step(self) -> list[Completion]:
        """Let rollouts start, draw one token for every live one, and return those that ended."""
        if self._core is None:
            return self._hand_out()
        try:
            self._core.stats, self._core.trace = self.stats, self.trace
            with evaluating(self.model) if self.model.training else nullcontext(), torch.inference_mode():
                self._ended += self._core.step(self.hooks)
        except BaseException:
            self._abandon()  # stopped half-way, the arrays do not fit together any more
            raise
        return self._hand_out()

    @property
    def num_unfinished(self) -> int:
        """Rollouts that wait, run, or have ended and come with the next step; paused ones do not count."""
        return len(self._ended) + (0 if self._core is None else self._core.num_active)

    def states(self) -> dict[Key, State]:
        """Every unfinished rollout: "pending", "live" or "paused"."""
        return {run.key: run.state for runs in self._runs.values() for run in runs if run.state != "ended"}

    def plan(self, requests: Iterable[Request]) -> MemoryPlan:
        """How the memory would be divided for these requests. UsageError: one of them can never fit."""
        return plan_memory(list(requests), self.forward.layout.token_bytes, self.num_slots, self.kv_cache_bytes)

    # --- to steer ---

    def abort(self, ids: Ids) -> None:
        """End these rollouts with finish reason "aborted" and their tokens so far; ids not alive are passed over."""
        runs = find_runs(self._runs, ids)
        self._withdraw(runs)
        for run in runs:
            self._discard_kept(run)
            run.state = "ended"
            self._ended.append((run, "aborted"))

    def pause(self, ids: Ids, *, keep_kv: bool = True) -> None:
        """Take these rollouts out of the batch; their tokens are kept until `resume`.

        Args:
            ids: requests or rollouts; those that are not alive are passed over.
            keep_kv: also keep the keys and values, where the memory's bound leaves room; otherwise, and after new
                weights, the tokens are read again at `resume`.
        """
        found = find_runs(self._runs, ids)
        self._withdraw([run for run in found if run.state != "paused"], keep_kv=keep_kv)
        for run in found:
            run.state = "paused"
            if not keep_kv:
                self._discard_kept(run)

    def resume(self, ids: Ids) -> None:
        """Let paused rollouts go on where they stopped."""
        self._enqueue([run for run in find_runs(self._runs, ids) if run.state == "paused"])

    def fork(self, request_id: str, index: int, *, into: str, num_rollouts: int = 1) -> None:
        """Start new rollouts that go on from the tokens of an unfinished one, with random numbers of their own.

        They belong to the new request `into`, and hold the source's tokens and log-probabilities. A fork of a live
        rollout shares its row until they draw different tokens.

        Raises:
            UsageError: a source that is not alive, or a repeated id.
        """
        sources = find_runs(self._runs, [(request_id, index)])
        if not sources:
            raise UsageError(f"fork of {request_id!r}, rollout {index}: it is not alive; fork before it ends")
        source = sources[0]
        request = Request(into, source.request.prompt_ids, num_rollouts, source.request.sampling)
        self._check([request])
        runs = self._runs[into] = self._new_runs(request)
        self._divide_memory()
        core = self._core
        is_live = source.state == "live" and core is not None
        history = core.batch.history_of(source) if is_live and core is not None else source.history
        for run in runs:
            run.history, run.marks = history, list(source.marks)
            run.job.num_tokens = len(history)
        if self._own is not None and request_id in self._own:
            self._own.add(into)
        num_joining = core.num_free if is_live and core is not None else 0
        if core is not None:
            core.join(runs[:num_joining], source)
        self._enqueue(runs[num_joining:])

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Take over new weights; those that already share memory with the engine's model are not copied.

        Rollouts that are alive go on with the new weights: their tokens so far are read again.

        Raises:
            UsageError: a name that the model does not have, or another shape.
        """
        take_weights(self.model, named_tensors)
        self.version = version
        if self._core is not None:
            self._forget_kept_memory(self._core)
            self._core.version = version
            self._core.must_reread = True
        self.forward.refresh()

    # --- inside ---

    def _generate(self, requests: list[Request]) -> Iterator[Completion]:
        if self._own is not None:
            raise UsageError("generate: another call is open; finish or close it, or add to it with submit()")
        self._own = {request.id for request in requests}
        try:
            with evaluating(self.model):
                self.submit(requests)
                while self.num_unfinished > 0:
                    yield from self.step()
        finally:
            own, self._own = self._own, None
            self._drop_unpaused(own or set())

    def _enqueue(self, runs: Sequence[Run]) -> None:
        if not runs:
            return
        self._divide_memory()
        core = self._open()
        core.waiting.add(runs)

    def _withdraw(self, runs: Sequence[Run], *, keep_kv: bool = False) -> None:
        core = self._core
        if core is None or not runs:
            return
        core.waiting.withdraw([run for run in runs if run.state == "pending"])
        live = [run for run in runs if run.state == "live"]
        if live:
            with torch.inference_mode():
                core.leave(live, keep_kv=keep_kv)

    def _hand_out(self) -> list[Completion]:
        ended, self._ended = self._ended, []
        for run, _ in ended:
            runs = self._runs[run.request.id]
            runs.remove(run)
            if not runs:
                del self._runs[run.request.id]
        if self._core is not None:
            self.peak_kv_bytes = max(self.peak_kv_bytes, self._kv_memory.take_peak())
            if not self._runs:
                self._close()
        return [run.completion(reason, self.version) for run, reason in ended]

    def _open(self) -> Core:
        """The current busy period, or a new one."""
        if self._core is None:
            assert self.memory is not None
            if self.forward.name == "fast" and why_not_fast(self.model) is not None:  # adapters came since, say
                self.forward = choose_forward(self.model, self._forward_option)
            self.forward.refresh()
            limits = self._limits(self.memory)
            shelf = Shelf(self.memory.shelf_bytes, self._kv_memory.account)
            pool = self._kv_memory.open(self.forward.layout, self.memory, limits.num_slots, self._num_rollouts)
            core = Core(self.forward, pool, shelf, self._new_scheduler(limits), limits)
            core.version, core.stop_strings = self.version, self._stop_strings
            core.stats, core.trace = self.stats, self.trace
            self._core = core
        return self._core

    @property
    def _num_rollouts(self) -> int:
        return sum(map(len, self._runs.values()))

    def _close(self) -> None:
        self._core = None
        self._kv_memory.close()

    def _abandon(self) -> None:
        """Forget all rollouts, paused ones too, and memory that may hold broken numbers."""
        if self._core is not None:
            self._core.waiting.withdraw_all()
        self._runs, self._ended, self._core, self._scheduler = {}, [], None, None
        self._kv_memory = KVMemory(self.kv_cache_bytes)

    def _drop_unpaused(self, request_ids: set[str]) -> None:
        """What is left of these requests when a consumer stops early is forgotten."""
        dropped = [run for i in request_ids for run in self._runs.get(i, ()) if run.state in ("pending", "live")]
        self._withdraw(dropped)
        for run in dropped:
            self._discard_kept(run)
            run.state = "ended"
            self._ended.append((run, "aborted"))
        self._hand_out()

    def _discard_kept(self, run: Run) -> None:
        if run.kept is not None and self._core is not None:
            self._core.shelf.discard(run.kept)
        run.kept = None

    def _divide_memory(self) -> None:
        """Plan the memory for all unfinished requests; where its rows must be longer than they are, start over."""
        before = self.memory
        self.memory = self.plan(runs[0].request for runs in self._runs.values())
        if self._core is None or before is None or before.num_tokens is None:
            return
        if self.memory.row_tokens > before.row_tokens:
            self._start_over(self._core)
            return
        self.memory = before
        if not self._kv_memory.has_grown(before, self._num_rollouts):
            self._start_over(self._core)

    def _start_over(self, core: Core) -> None:
        """Let all live rollouts wait, and give all memory back."""
        known = [run for runs in self._runs.values() for run in runs if run.state == "live" or run in core.waiting]
        try:
            self._withdraw(known)
            self._forget_kept_memory(core)
            self._kv_memory.release()
            self._core = self._scheduler = None
            self._open().waiting.add(known)
        except BaseException:  # as where the device has no more memory: half-way there are rollouts without a place
            self._abandon()
            raise

    def _limits(self, memory: MemoryPlan) -> Limits:
        is_dynamic = isinstance(self._scheduler_option, str) and self._scheduler_option.startswith("dynamic")
        slots = memory.num_slots if self.kv_cache_bytes is not None and not is_dynamic else self.num_slots
        return Limits(num_slots=slots or _NO_BOUND, num_tokens=memory.num_tokens)

    def _new_scheduler(self, limits: Limits) -> Scheduler:
        if self._scheduler is None or self._scheduler_limits != limits:
            self._scheduler = make_scheduler(self._scheduler_option, limits, self._predictor)
            self._scheduler_limits = limits
        return self._scheduler

    def _forget_kept_memory(self, core: Core) -> None:
        """Keys and values made by other weights, or cut for another pool, are read again."""
        core.shelf.forget_prompts()
        for runs in self._runs.values():
            for run in runs:
                core.shelf.discard(run.kept)
                run.kept = None

    def _new_runs(self, request: Request) -> list[Run]:
        self._num_arrived += request.num_rollouts
        return new_runs(request, self.seed, self._num_arrived - request.num_rollouts)

    def _check(self, requests: Sequence[Request]) -> None:
        check_requests(self.model, requests, [runs[0].request for runs in self._runs.values()])
        self.plan(requests)
        for strings in {request.sampling.stop_strings for request in requests}:
            if strings and strings not in self._stop_strings:
                self._stop_strings[strings] = StopStrings(self._tokenizer, strings)
