"""vLLM as the generator, in this process or in processes of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import InvalidStateError
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from torch import Tensor

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate.base import EngineStats, Generator, Request, Sampling
from podsrl.generate.vllm import start
from podsrl.generate.vllm.handover import WeightFolder, with_tied
from podsrl.generate.vllm.order import Priorities
from podsrl.generate.vllm.sampling import (
    check_drawing,
    drawn_of,
    new_cache_salt,
    new_completion,
    rollout_options,
    whole_of,
)
from podsrl.generate.vllm.watch import Watch
from podsrl.types import Completion

ABILITIES = frozenset({"join", "start", "abort_rollouts", "proof"})


@dataclass(slots=True, eq=False)
class _Rollout:
    """One request of vLLM."""

    request: Request
    index: int
    version: int
    inbox: deque[tuple[_Rollout, Any]]
    """Where it goes, with vLLM's output, when it has ended; None for the output: it was aborted."""


class VLLM(Generator):
    """Generates with vLLM. `make_vllm` makes one.

    Several calls of `generate` may be open at once. With vLLM in processes of its own, they work from the call on.

    Args:
        llm: a `vllm.LLM` with priorities and processed log-probs.
        watch: of its own processes; None: its engine is in this one.
        seed: of the rollouts' random numbers.
        scheduler: `rollouts.scheduler`; vLLM takes the refill order of it.
        max_tokens: most tokens of a prompt with its completion.
        tied: name of a weight -> its other names (`tied_names`).
        weights_parent: where the weights for its processes are written; "": in shared memory.
        timeout_seconds: their longest silence.
    """

    def __init__(
        self,
        llm: Any,
        *,
        watch: Watch | None,
        seed: int,
        scheduler: str,
        max_tokens: int,
        tied: Mapping[str, tuple[str, ...]],
        weights_parent: str = "",
        timeout_seconds: float = 1800.0,
    ) -> None:
        self.version = 0
        self.abilities = ABILITIES if watch is None else ABILITIES | {"beside"}
        self.stats = EngineStats()
        self._llm, self._watch, self._seed, self._scheduler = llm, watch, seed, scheduler
        self._max_tokens, self._tied, self._weights_parent = max_tokens, tied, weights_parent
        if watch is not None:
            watch.wake_by(partial(_wake, llm.llm_engine.engine_core))
        self._timeout_seconds = timeout_seconds
        self._num_slots: int = llm.llm_engine.vllm_config.scheduler_config.max_num_seqs
        self._priorities = Priorities(scheduler)
        self._salt = new_cache_salt()
        self._running: dict[str, _Rollout] = {}  # by vLLM's id
        self._num_asked = 0

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Yield every completion as it finishes; an aborted one has no tokens, which vLLM does not give back.

        Raises:
            UsageError: a request that vLLM cannot serve, or an id that runs already.
            LostGenerator: vLLM failed, or its own process has ended or was silent for too long.
        """
        call = self._generate(list(requests))
        next(call)  # it begins here; ended or forgotten, it aborts what is left
        return cast(Iterator[Completion], call)

    def abort(self, ids: Iterable[str | tuple[str, int]]) -> None:
        wanted = set(ids)
        self._drop(
            [
                key
                for key, rollout in self._running.items()
                if rollout.request.id in wanted or (rollout.request.id, rollout.index) in wanted
            ]
        )

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Sample from these weights from now on.

        Raises:
            UsageError: rollouts run: vLLM would go on with their old keys and values.
            LostGenerator: vLLM does not take the weights, or as of `generate`.
        """
        if self._running:
            raise UsageError(
                f"load_weights while {len(self._running)} rollouts run in vLLM, which would keep the old weights' keys "
                "and values: read their completions to the end, or abort them, first"
            )
        named_tensors = with_tied(named_tensors, self._tied)
        with closing(WeightFolder(self._weights_parent, "options.vllm.weights_folder")) as folder:
            if self._watch is None:
                copies = ((name, tensor.detach().clone()) for name, tensor in named_tensors)  # it keeps a layer's
                given: Mapping[str, Any] = {"weights_iterator": copies}
            else:
                given = {"weights_path": folder.write(named_tensors)}
            try:
                with self._limited():
                    self._llm.collective_rpc("reload_weights", kwargs=given)
            except Exception as error:  # as in `_step`
                message = f"vLLM does not take the weights of version {version}: {error!r}"
                raise self._failure(error, message) from error
        self.version, self._salt = version, new_cache_salt()

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        request = Request("first token", tuple(prompt_ids), 1, Sampling(max_new_tokens=1))
        inbox: deque[tuple[_Rollout, Any]] = deque()
        self._ask(_Rollout(request, 0, self.version, inbox), priority=-1, logprobs=1)
        while not inbox:
            self._step()
        _, output = inbox.popleft()
        table: Mapping[int, Any] = output.outputs[0].logprobs[0]
        token = min(table, key=lambda token: table[token].rank)
        return token, float(table[token].logprob)

    def describe(self, requests: Sequence[Request]) -> str:
        self._check(requests)
        import vllm

        place = "this process" if self._watch is None else "processes of its own"
        cache = self._llm.llm_engine.vllm_config.cache_config
        kv = "" if cache.kv_cache_memory_bytes is None else f" and {cache.kv_cache_memory_bytes / 2**30:.3g} GiB"
        order = self._scheduler.partition("+")[2] or "fifo"
        return (
            f"vLLM {vllm.__version__} in {place}, at most {self._num_slots} rollouts{kv} at once, refill order {order}"
            "; where the memory is full, the last in that order waits and is read again"
        )

    def close(self) -> None:
        """End vLLM and its processes; again, nothing happens."""
        llm, self._llm = self._llm, None
        if llm is None:
            return
        self._running.clear()
        with start.untouched():
            llm.llm_engine.engine_core.shutdown()
        if self._watch is not None:
            self._watch.end()

    def _generate(self, requests: list[Request]) -> Iterator[Completion | None]:
        self._check(requests)
        priorities = self._priorities.of(requests)
        inbox: deque[tuple[_Rollout, Any]] = deque()
        asked = {request.id: request for request in requests}
        rollouts = [_Rollout(drawn_of(each, i), i, self.version, inbox) for each in requests for i in each.indices]
        keys: list[str] = []
        try:
            for rollout in rollouts:
                keys.append(self._ask(rollout, priorities[rollout.request.id, rollout.index]))
            yield None
            for _ in rollouts:
                while not inbox:
                    self._step()
                drawn = self._completion(*inbox.popleft())
                yield whole_of(asked[drawn.request_id], drawn)
        finally:
            self._drop([key for key in keys if key in self._running])

    def _check(self, requests: Sequence[Request]) -> None:
        used = {rollout.request.id for rollout in self._running.values()}
        for request in requests:
            check_drawing(request.sampling)
            if request.id in used:
                raise UsageError(f"request id {request.id!r} is used twice: give every request that runs its own id")
            used.add(request.id)
            if len(request.prompt_ids) + request.sampling.max_new_tokens > self._max_tokens:
                raise UsageError(
                    f"request {request.id!r} needs {len(request.prompt_ids)} prompt tokens + max_new_tokens = "
                    f"{request.sampling.max_new_tokens}, which exceeds vLLM's max_model_len of {self._max_tokens}: "
                    "shorten one of them, or raise options.vllm.max_model_len"
                )

    def _ask(self, rollout: _Rollout, priority: int, **changes: Any) -> str:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._num_asked += 1
        key = str(self._num_asked)
        options = rollout_options(rollout.request, rollout.index, self._seed) | changes
        params = SamplingParams(
            **options, detokenize=bool(options["stop"]), output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True
        )
        prompt = {"prompt_token_ids": list(rollout.request.prompt_ids), "cache_salt": self._salt}
        try:
            self._llm.llm_engine.add_request(key, prompt, params, priority=priority)
        except Exception as error:  # as in `_step`
            message = f"request {rollout.request.id!r}: vLLM does not take it: {error}"
            raise self._failure(error, message, UsageError) from None
        self._running[key] = rollout
        return key

    def _step(self) -> None:
        """Put what has ended into its call's inbox."""
        if self._llm is None:
            raise PodsError("this vLLM is closed: nothing can be generated")
        try:
            with start.torch_numbers_kept(), self._limited():
                outputs = self._llm.llm_engine.step()
        except Exception as error:  # vLLM's own types differ between its versions
            self._running.clear()
            message = f"vLLM failed: {type(error).__name__}: {error}; its own messages say why"
            raise self._failure(error, message) from error
        self.stats.steps += 1
        for output in outputs:
            rollout = self._running.pop(output.request_id, None) if output.finished else None
            if rollout is not None:
                rollout.inbox.append((rollout, output))

    def _limited(self) -> AbstractContextManager[None]:
        """Around what waits for vLLM's own processes."""
        return nullcontext() if self._watch is None else self._watch.limited(self._timeout_seconds)

    def _failure(self, error: Exception, message: str, kind: type[PodsError] = LostGenerator) -> PodsError:
        """What to raise: the message, unless vLLM's own process is gone, which is the reason then."""
        is_gone = type(error).__name__ == "EngineDeadError"  # vLLM knows before the process has ended
        if self._watch is None or not (is_gone or self._watch.has_ended):
            return kind(message)
        late = f"was ended: it gave no answer within options.vllm.timeout_seconds = {self._timeout_seconds:g}"
        how = late if self._watch.is_late else "has ended (killed, out of memory, or see its own messages)"
        return LostGenerator(f"vLLM's own process {how}; resume the run")

    def _drop(self, keys: list[str]) -> None:
        """Abort; without any, nothing is sent: a list without ids aborts all in some of vLLM's interfaces."""
        if not keys or self._llm is None:
            return
        self._llm.llm_engine.abort_request(keys)
        for key in keys:
            rollout = self._running.pop(key)
            rollout.inbox.append((rollout, None))

    def _completion(self, rollout: _Rollout, output: Any) -> Completion:
        request, index = rollout.request, rollout.index
        if output is None:
            found = new_completion(request, index, (), (), "abort", rollout.version)
        else:
            end = output.outputs[0]
            logprobs = [table[token].logprob for table, token in zip(end.logprobs, end.token_ids, strict=True)]
            found = new_completion(request, index, end.token_ids, logprobs, end.finish_reason, rollout.version)
            self.stats.prompt_tokens += len(request.prompt_ids) - (output.num_cached_tokens or 0)
        self.stats.tokens += len(found.token_ids)
        self.stats.forwarded += len(found.token_ids)
        return found


def _wake(core: Any) -> None:
    """End waits for an engine's process that was killed: vLLM itself leaves its caller waiting."""
    error = RuntimeError("the engine's process has ended")
    core.outputs_queue.put(error)
    for future in list(core.utility_results.values()):
        with suppress(InvalidStateError):
            future.set_exception(error)
