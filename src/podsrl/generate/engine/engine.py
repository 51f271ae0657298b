"""The built-in generator: requests -> completions, by continuous batching on one model in this process.

One token's way is in three files: `engine.py` (what a caller may ask for), `stepper.py` (one token per running
sequence) and `rows.py` (the arrays of the batch). A poll, in order:

    start     the scheduler names the rollouts that start now; each distinct prompt is read once
    forward   one token per row, for all rows; rollouts with the same tokens so far share a row
    watch     sees the rollouts that are due; they may end and fork
    draw      one token per rollout
    leave     finished rollouts are handed out; rows split where their rollouts differ, and empty rows are filled

Any Hugging Face decoder that keeps full keys and values runs on it. Weights are used in place: a trainer that updates
the same model has nothing to copy. Whatever the slots, the schedule and the steering, a rollout gets the tokens it
would get alone (in float32; in bfloat16 a sum may round differently with the batch, and so may a token).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from podsrl.errors import UsageError, short
from podsrl.generate.base import Ending, EngineStats, Generator, Request
from podsrl.generate.engine.forward.base import Forward
from podsrl.generate.engine.forward.choose import Name, choose_forward, why_no_graph
from podsrl.generate.engine.limits import KVMemory, MemoryPlan, check_requests, plan_memory
from podsrl.generate.engine.queue import PrefixCache
from podsrl.generate.engine.sequence import HELD, Ids, Sequence, State, find_sequences, new_sequences
from podsrl.generate.engine.stepper import Ended, Stepper
from podsrl.generate.engine.stop_strings import StopStrings
from podsrl.generate.engine.weights import take_weights
from podsrl.generate.schedule.job import Limits
from podsrl.generate.schedule.scheduler import Scheduler, make_scheduler, named
from podsrl.lib.torch_model import end_token_ids
from podsrl.lib.watch import Act, End, Fork, Hold, Key, Note, Watch
from podsrl.types import Rollout

ABILITIES = frozenset({"join", "start", "abort_rollouts", "partial", "watch", "load"})
"""See `Generator.abilities`."""
_NO_BOUND = 1 << 31
_STEPS = {
    "graph": "decode step as a CUDA graph",
    "fast": "hand-written decode step",
    "model": "the model's own forward",
}


class Engine(Generator):
    """Generates completions for requests from one model.

    Args:
        model: a Hugging Face causal language model; used in place, on its own device.
        num_slots: most rollouts that run at once; None: as many as `kv_cache_bytes` holds, or all.
        kv_cache_bytes: bound of all key-value memory held at any time: of rows, shared prompts, and what moving them
            takes; None: no bound.
        scheduler: "continuous" or "dynamic", perhaps with a refill order ("continuous+breadth"), or an object of your
            own (see schedule/scheduler.py).
        seed: with a group's id, a rollout's index and a token's position it decides every random number, so the same
            request gives the same tokens in any batch.
        tokenizer: needed for requests with stop strings; where a request names no stop tokens, its end token is one.
        forward: "graph", "fast" or "model" to insist on one of the decode steps; None: the fastest that covers the
            model.

    Raises:
        UsageError: an argument out of range, or a model that cannot be run.
    """

    abilities = ABILITIES

    def __init__(
        self,
        model: Any,
        *,
        num_slots: int | None = None,
        kv_cache_bytes: int | None = None,
        scheduler: str | Scheduler = "continuous",
        seed: int = 0,
        tokenizer: Any = None,
        forward: Name | None = None,
    ) -> None:
        if num_slots is not None and num_slots < 1:
            raise UsageError(f"num_slots = {num_slots}: wanted at least 1, or None for no limit")
        if kv_cache_bytes is not None and kv_cache_bytes < 1:
            raise UsageError(f"kv_cache_bytes = {kv_cache_bytes}: wanted at least 1, or None for no bound")
        if isinstance(scheduler, str):
            named(scheduler)  # a wrong name is an error now
        self.model = model
        self.num_slots = num_slots
        self.kv_cache_bytes = kv_cache_bytes
        self.seed = seed
        self.version = 0
        self.peak_kv_bytes = 0
        """Largest key-value memory held so far while rollouts ran, in bytes; set it to 0 to measure anew."""
        self.memory: MemoryPlan | None = None
        """How the last call's memory was divided."""
        self.forward: Forward = choose_forward(model, forward)
        """The decode step; `forward.name` is "graph", "fast" or "model"."""
        self._forward_option = forward
        self._scheduler_option, self._tokenizer = scheduler, tokenizer
        self._kv_memory = KVMemory(kv_cache_bytes)
        self._stop_strings: dict[tuple[str, ...], StopStrings] = {}
        self._stats = EngineStats()
        self._sequences: dict[str, dict[int, Sequence]] = {}  # unfinished ones: group's id -> index -> sequence
        self._watch: Watch | None = None  # of all that is unfinished
        self._stepper: Stepper | None = None
        self._modules: list[torch.nn.Module] = []  # of the model, while there is a stepper
        self._ended: list[Ended] = []  # by a verb; handed out with the next poll
        self._num_arrived = 0
        self._next_index: dict[str, int] = {}  # of each group, behind the rollouts that there have been

    # --- to generate ---

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        """Let requests wait for the next `poll`; also while others run.

        Args:
            requests: what is wanted. Those with an id that runs add other indices to its group.
            watch: sees rollouts while they run; its forks come with the next indices of their groups.

        Raises:
            UsageError: another watch than that of the rollouts that are unfinished, a rollout that is unfinished, a
                prompt that with its limit exceeds the model's window, a request that can never fit in
                `kv_cache_bytes`, stop strings without a tokenizer. Nothing is submitted then.
        """
        wanted = list(requests)
        self._check(wanted, watch)
        self._watch = watch
        new = [sequence for request in wanted for sequence in self._new_sequences(request)]
        try:
            self._enqueue(new)
        except BaseException:
            self._forget(new)
            raise

    def poll(self, seconds: float | None = None) -> list[Rollout]:
        """Let rollouts start, show the watch those that are due, draw one token each, and return those that ended.

        It works in the model's evaluation mode, and leaves each module's mode as it was. It never waits.
        """
        if self._stepper is not None:
            try:
                with self._evaluating(), torch.inference_mode():
                    self._ended += self._stepper.step(self._watch, self._obey)
            except BaseException:
                self._abandon()  # stopped half-way, the arrays do not fit together any more
                raise
        return self._hand_out()

    @property
    def num_unfinished(self) -> int:  # type: ignore[override]
        """Rollouts that wait, run, or have ended and come with the next `poll`."""
        return len(self._ended) + (0 if self._stepper is None else self._stepper.num_active)

    def states(self) -> dict[Key, State]:
        """Every unfinished rollout: "waiting" or "running"."""
        return {sequence.key: sequence.state for sequence in self._everyone if sequence.state != "ended"}

    def plan(self, requests: Iterable[Request]) -> MemoryPlan:
        """How the memory would be divided for these requests. UsageError: one of them can never fit."""
        return plan_memory(list(requests), self.forward.layout.token_bytes, self.num_slots, self.kv_cache_bytes)

    def describe(self, requests: Iterable[Request]) -> str:
        """Which decode step runs, and how requests like these share the key-value memory.

        Raises:
            UsageError: one of them can never fit.
        """
        step, reason = _STEPS[self.forward.name], ""
        if self.model.device.type == "cuda" and self.forward.name != "graph":
            reason = f" (no CUDA graph: {why_no_graph(self.model) or 'not asked for'})"
        return f"{step}{reason}; {self.plan(requests)}"

    def close(self) -> None:
        """There is nothing to give back."""

    @property
    def stats(self) -> EngineStats:
        """Counts since the engine was made, or since this was last replaced."""
        return self._stats

    @stats.setter
    def stats(self, stats: EngineStats) -> None:
        self._stats = stats
        if self._stepper is not None:
            self._stepper.stats = stats

    # --- to steer ---

    def abort(self, ids: Ids) -> None:
        """End these rollouts, open and with their tokens so far; those that have ended stay."""
        self._end(find_sequences(self._sequences, ids), Ending())

    def fork(
        self,
        request_id: str,
        index: int,
        *,
        num_rollouts: int = 1,
        token: int | None = None,
        num_tokens: int | None = None,
    ) -> list[Key]:
        """Start rollouts that go on from the tokens of an unfinished one; see `Fork`.

        A fork of a running rollout shares its row until they draw different tokens.

        Returns:
            The new rollouts, in the order of their indices.

        Raises:
            UsageError: a source that has ended or has fewer tokens; or a token that is none, ends an answer or has no
                room.
        """
        sources = find_sequences(self._sequences, [(request_id, index)])
        if not sources:
            raise UsageError(f"fork of {request_id!r}, rollout {index}: it is not alive; fork before it ends")
        source = sources[0]
        history = source.history
        if self._stepper is not None and source.state == "running":
            history = self._stepper.rows.history_of(source)
        if num_tokens is not None:
            if not 0 <= num_tokens <= len(history):
                raise UsageError(f"fork of {source.key} behind {num_tokens} tokens: wanted 0 .. {len(history)}")
            history = history.first(num_tokens)
        if token is not None:
            self._check_token(source, len(history), token)
        first = self._next_index[request_id]
        forks = self._new_sequences(replace(source.request, num_rollouts=num_rollouts, first_index=first, starts={}))
        for fork in forks:
            fork.go_on(source, history, token)
        self._make_room()  # which may take all of them out
        num_joining = 0
        if self._stepper is not None and source.state == "running" and token is None and num_tokens is None:
            num_joining = self._stepper.num_free
            self._stepper.join(forks[:num_joining], source)
        self._enqueue(forks[num_joining:])
        return [fork.key for fork in forks]

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Take over new weights; those that already share memory with the engine's model are not copied.

        Rollouts that run draw from the new weights behind the keys and values that they have, those of the weights
        before; their completions name the version of each token. What starts later, or comes back to a row, is read
        with the new weights. UsageError: a name that the model does not have, or another shape.
        """
        take_weights(self.model, named_tensors)
        self.version = version
        if self._stepper is not None:
            self._stepper.use_weights(version)
            self.forward.refresh()  # otherwise `_open` does it

    # --- rollouts ---

    def _check(self, requests: list[Request], watch: Watch | None) -> None:
        if self._sequences and watch is not self._watch:
            raise UsageError(
                f"submit with watch = {short(watch)} while {self.num_unfinished} rollouts are unfinished, whose watch "
                f"is {short(self._watch)}: give the same one, or poll until nothing is unfinished"
            )
        check_requests(self.model, requests, self._sequences)
        self.plan(requests)
        for strings in {request.sampling.stop_strings for request in requests}:
            if strings and strings not in self._stop_strings:
                self._stop_strings[strings] = StopStrings(self._tokenizer, strings)

    def _requests(self) -> list[Request]:
        """Of unfinished rollouts."""
        return list({id(sequence.request): sequence.request for sequence in self._everyone}.values())

    @property
    def _everyone(self) -> list[Sequence]:
        """Unfinished rollouts."""
        return [sequence for group in self._sequences.values() for sequence in group.values()]

    def _new_sequences(self, request: Request) -> list[Sequence]:
        if request.sampling.stop_token_ids is None:
            stops = end_token_ids(self.model, self._tokenizer)
            request = replace(request, sampling=replace(request.sampling, stop_token_ids=stops))
        self._num_arrived += request.num_rollouts
        self._next_index[request.id] = max(request.indices.stop, self._next_index.get(request.id, 0))
        new = new_sequences(request, self.seed, self._num_arrived - request.num_rollouts)
        self._sequences.setdefault(request.id, {}).update((sequence.index, sequence) for sequence in new)
        return new

    def _forget(self, sequences: Iterable[Sequence]) -> None:
        for sequence in sequences:
            group = self._sequences.get(sequence.request.id, {})
            group.pop(sequence.index, None)
            if not group:
                self._sequences.pop(sequence.request.id, None)

    def _enqueue(self, sequences: list[Sequence]) -> None:
        if sequences:
            self._make_room()
            self._open().add(sequences)

    def _obey(self, acts: Iterable[Act]) -> None:
        for act in list(acts) if isinstance(acts, Iterable) else [acts]:
            if isinstance(act, End):
                self._end(find_sequences(self._sequences, [act.key]), Ending("pruned"))
            elif isinstance(act, Hold):
                held = find_sequences(self._sequences, [act.key])
                for sequence in held:
                    sequence.notes = sequence.notes.having(HELD, [sequence.num_shown])
                self._end(held, Ending())
            elif isinstance(act, Fork):
                self.fork(*act.key, num_rollouts=act.num_rollouts, token=act.token, num_tokens=act.num_tokens)
            elif isinstance(act, Note):
                for sequence in find_sequences(self._sequences, [act.key]):
                    sequence.notes = sequence.notes.having(act.name, act.values)
            else:
                raise UsageError(f"look() of a watch returned {short(act)}; wanted End, Hold, Fork and Note records")

    def _check_token(self, source: Sequence, num_tokens: int, token: int) -> None:
        vocabulary, sampling = self.model.get_input_embeddings().weight.shape[0], source.request.sampling
        is_word = isinstance(token, int) and 0 <= token < vocabulary and token not in (sampling.stop_token_ids or ())
        if not is_word or num_tokens + 1 >= sampling.max_new_tokens:
            raise UsageError(
                f"fork of {source.key} with the token {token!r} behind {num_tokens}: wanted an integer of 0 .. "
                f"{vocabulary - 1} that ends no answer, and room for one to draw within max_new_tokens = "
                f"{sampling.max_new_tokens}"
            )

    def _end(self, sequences: list[Sequence], ending: Ending) -> None:
        if self._stepper is not None:
            self._stepper.take_out(sequences)
        for sequence in sequences:
            sequence.move("ended")
            self._ended.append((sequence, ending))

    def _hand_out(self) -> list[Rollout]:
        ended, self._ended = self._ended, []
        self._forget(sequence for sequence, _ in ended)
        if self._stepper is not None:
            self.peak_kv_bytes = max(self.peak_kv_bytes, self._kv_memory.take_peak())
            if not self._sequences:
                self._close()
        return [sequence.rollout(ending, self.version) for sequence, ending in ended]

    # --- the busy period: from the first rollout to the last, with the memory that it takes ---

    def _open(self) -> Stepper:
        """The stepper of the present busy period, or of a new one."""
        if self._stepper is None:
            assert self.memory is not None
            try:
                self.forward.refresh()
            except UsageError:  # adapters came since, say
                self.forward = choose_forward(self.model, self._forward_option)
            limits, self._modules = self._limits(self.memory), list(self.model.modules())
            cache = PrefixCache(self.memory.cache_bytes, self._kv_memory.account)
            pool = self._kv_memory.open(self.forward.layout, self.memory, limits.num_slots, len(self._everyone))
            self._stepper = Stepper(
                self.forward,
                pool,
                cache,
                make_scheduler(self._scheduler_option, limits),
                limits,
                stop_strings=self._stop_strings,
                stats=self._stats,
                version=self.version,
            )
        return self._stepper

    def _limits(self, memory: MemoryPlan) -> Limits:
        is_dynamic = isinstance(self._scheduler_option, str) and self._scheduler_option.startswith("dynamic")
        slots = memory.num_slots if self.kv_cache_bytes is not None and not is_dynamic else self.num_slots
        return Limits(num_slots=slots or _NO_BOUND, num_tokens=memory.num_tokens)

    def _make_room(self) -> None:
        """Divide the memory for all unfinished requests, those that have just arrived included.

        Without a bound the pool grows by itself. Under one it is divided once, when the busy period opens, and that
        division holds until arrivals need longer rows, or more rows than the pool can be enlarged to; then everything
        that runs goes back to the queue and the memory is taken anew.

        Example: a bound of 2,048 tokens and rows of at most 50 give 39 slots. A request with rows of 60 arrives: the
        engine starts over with 33 slots. A request with rows of 40 changes nothing.
        """
        before, self.memory = self.memory, self.plan(self._requests())
        if self._stepper is None or before is None or before.num_tokens is None:
            return
        if self.memory.row_tokens > before.row_tokens:
            self._start_over(self._stepper)
            return
        self.memory = before
        if not self._kv_memory.has_grown(before, len(self._everyone)):
            self._start_over(self._stepper)

    def _start_over(self, stepper: Stepper) -> None:
        """Let all running rollouts wait, and give all memory back."""
        active = [sequence for sequence in self._everyone if sequence.state in ("running", "waiting")]
        try:
            stepper.take_out(active)
            stepper.cache.forget_all()
            self._kv_memory.release()
            self._stepper = None
            self._open().add(active)
        except BaseException:  # as where the device has no more memory: half-way there are rollouts without a place
            self._abandon()
            raise

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """The model's evaluation mode, for one token: past `Module.__setattr__`, which would cost more than a draw."""
        training = [module for module in self._modules if module.training]
        for module in training:
            vars(module)["training"] = False
        try:
            yield
        finally:
            for module in training:
                vars(module)["training"] = True

    def _close(self) -> None:
        self._stepper, self._next_index = None, {}
        self._kv_memory.close()

    def _abandon(self) -> None:
        """Forget all rollouts, and memory that may hold broken numbers."""
        if self._stepper is not None:
            self._stepper.queue.withdraw_all()
        self._sequences, self._ended, self._stepper, self._next_index = {}, [], None, {}
        self._kv_memory = KVMemory(self.kv_cache_bytes)
