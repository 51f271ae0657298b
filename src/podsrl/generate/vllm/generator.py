"""vLLM as the generator, within this process; with `scale.generators`, that is a child of the run's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate.base import EngineStats, Generator, Request, Sampling
from podsrl.generate.vllm import start
from podsrl.generate.vllm.handover import with_tied
from podsrl.generate.vllm.order import Priorities
from podsrl.generate.vllm.sampling import (
    check_drawing,
    drawn_of,
    new_cache_salt,
    new_completion,
    rollout_options,
    whole_of,
)
from podsrl.lib.watch import Watch
from podsrl.types import Completion


@dataclass(slots=True, eq=False)
class _Rollout:
    """One request of vLLM."""

    asked: Request
    drawn: Request
    """What vLLM draws of it (`drawn_of`)."""
    index: int
    version: int


class VLLM(Generator):
    """Generates with vLLM, one call of `generate` at a time, or in steps as the engine. `make_vllm` makes one.

    Args:
        llm: a `vllm.LLM` with priorities and processed log-probs.
        seed: of the rollouts' random numbers.
        scheduler: `rollouts.scheduler`; vLLM takes the refill order of it.
        max_tokens: most tokens of a prompt with its completion.
        tied: name of a weight -> its other names (`tied_names`).
    """

    abilities = frozenset({"join", "start", "abort_rollouts", "proof"})

    def __init__(
        self, llm: Any, *, seed: int, scheduler: str, max_tokens: int, tied: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.version = 0
        self.stats = EngineStats()
        self._llm, self._seed, self._scheduler, self._max_tokens, self._tied = llm, seed, scheduler, max_tokens, tied
        self._num_slots: int = llm.llm_engine.vllm_config.scheduler_config.max_num_seqs
        self._priorities = Priorities(scheduler)
        self._salt = new_cache_salt()
        self._running: dict[str, _Rollout] = {}  # by vLLM's id
        self._ended: list[Completion] = []
        self._num_asked = 0

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Yield every completion as it finishes; an aborted one has no tokens, which vLLM does not give back.

        Raises:
            UsageError: another call is open, or there is a request that vLLM cannot serve.
            LostGenerator: vLLM failed.
        """
        wanted = list(requests)
        self._check(wanted)
        return self._generate(wanted)

    def submit(self, requests: Iterable[Request]) -> None:
        """Let requests wait for the next `step`; also while others run. UsageError: as `generate`."""
        wanted = list(requests)
        self._check(wanted)
        priorities = self._priorities.of(wanted)
        rollouts = [_Rollout(each, drawn_of(each, i), i, self.version) for each in wanted for i in each.indices]
        for rollout in rollouts:
            self._ask(rollout, priorities[rollout.asked.id, rollout.index])

    def step(self, watch: Watch | None = None) -> list[Completion]:
        """Draw one token of every rollout that runs, and return the completions that ended; a watch sees nothing."""
        if self._running and not self._ended:
            self._ended += [self._completion(rollout, output) for rollout, output in self._outputs()]
        found, self._ended = self._ended, []
        return found

    @property
    def num_unfinished(self) -> int:
        """Rollouts that wait, run, or have ended and come with the next step."""
        return len(self._running) + len(self._ended)

    def abort(self, ids: Iterable[str | tuple[str, int]]) -> None:
        wanted = set(ids)
        keys = [
            key
            for key, rollout in self._running.items()
            if rollout.asked.id in wanted or (rollout.asked.id, rollout.index) in wanted
        ]
        if keys and self._llm is not None:  # a list without ids aborts all in some of vLLM's interfaces
            self._llm.llm_engine.abort_request(keys)
            self._ended += [self._completion(self._running.pop(key), None) for key in keys]

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Sample from these weights from now on.

        Raises:
            UsageError: rollouts run: vLLM would go on with their old keys and values.
            LostGenerator: vLLM does not take the weights.
        """
        if self._running:
            raise UsageError(
                f"load_weights while {len(self._running)} rollouts run in vLLM, which would keep the old weights' keys "
                "and values: read their completions to the end, or abort them, first"
            )
        named_tensors = with_tied(named_tensors, self._tied)
        copies = ((name, tensor.detach().clone()) for name, tensor in named_tensors)  # it keeps a layer's
        try:
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": copies})
        except Exception as error:  # as in `_outputs`
            raise LostGenerator(f"vLLM does not take the weights of version {version}: {error!r}") from error
        self.version, self._salt = version, new_cache_salt()

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        if self._running:
            raise UsageError(f"first_logprob while {len(self._running)} rollouts run in vLLM: wanted none")
        request = Request("first token", tuple(prompt_ids), 1, Sampling(max_new_tokens=1))
        self._ask(_Rollout(request, request, 0, self.version), priority=-1, logprobs=1)
        while not (found := self._outputs()):
            pass
        [(_, output)] = found
        table: Mapping[int, Any] = output.outputs[0].logprobs[0]
        token = min(table, key=lambda token: table[token].rank)
        return token, float(table[token].logprob)

    def describe(self, requests: Sequence[Request]) -> str:
        self._check(requests)
        import vllm

        cache = self._llm.llm_engine.vllm_config.cache_config
        kv = "" if cache.kv_cache_memory_bytes is None else f" and {cache.kv_cache_memory_bytes / 2**30:.3g} GiB"
        order = self._scheduler.partition("+")[2] or "fifo"
        return (
            f"vLLM {vllm.__version__} in this process, at most {self._num_slots} rollouts{kv} at once, refill order "
            f"{order}; where the memory is full, the last in that order waits and is read again"
        )

    def close(self) -> None:
        """End vLLM; again, nothing happens."""
        llm, self._llm = self._llm, None
        if llm is None:
            return
        self._running.clear()
        with start.untouched():
            llm.llm_engine.engine_core.shutdown()

    def _generate(self, requests: list[Request]) -> Iterator[Completion]:
        if self._running or self._ended:
            raise UsageError("generate: another call is open; finish or close it, or add to it with submit()")
        try:
            self.submit(requests)
            while self.num_unfinished:
                yield from self.step()
        finally:
            self.abort([request.id for request in requests])
            self._ended.clear()

    def _check(self, requests: Sequence[Request]) -> None:
        used = {rollout.asked.id for rollout in self._running.values()}
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

    def _ask(self, rollout: _Rollout, priority: int, **changes: Any) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._num_asked += 1
        key = str(self._num_asked)
        options = rollout_options(rollout.drawn, rollout.index, self._seed) | changes
        params = SamplingParams(
            **options, detokenize=bool(options["stop"]), output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True
        )
        prompt = {"prompt_token_ids": list(rollout.drawn.prompt_ids), "cache_salt": self._salt}
        try:
            self._llm.llm_engine.add_request(key, prompt, params, priority=priority)
        except Exception as error:  # as in `_outputs`
            raise UsageError(f"request {rollout.asked.id!r}: vLLM does not take it: {error}") from None
        self._running[key] = rollout

    def _outputs(self) -> list[tuple[_Rollout, Any]]:
        """What has ended after one more step of vLLM."""
        if self._llm is None:
            raise PodsError("this vLLM is closed: nothing can be generated")
        try:
            with start.torch_numbers_kept():
                outputs = self._llm.llm_engine.step()
        except Exception as error:  # vLLM's own types differ between its versions
            self._running.clear()
            raise LostGenerator(f"vLLM failed: {type(error).__name__}: {error}; its own messages say why") from error
        self.stats.steps += 1
        ended = [output for output in outputs if output.finished and output.request_id in self._running]
        return [(self._running.pop(output.request_id), output) for output in ended]

    def _completion(self, rollout: _Rollout, output: Any) -> Completion:
        """Of what vLLM put out; None: it was aborted."""
        drawn, index = rollout.drawn, rollout.index
        if output is None:
            found = new_completion(drawn, index, (), (), "abort", rollout.version)
        else:
            end = output.outputs[0]
            logprobs = [table[token].logprob for table, token in zip(end.logprobs, end.token_ids, strict=True)]
            found = new_completion(drawn, index, end.token_ids, logprobs, end.finish_reason, rollout.version)
            self.stats.prompt_tokens += len(drawn.prompt_ids) - (output.num_cached_tokens or 0)
        self.stats.tokens += len(found.token_ids)
        self.stats.forwarded += len(found.token_ids)
        return whole_of(rollout.asked, found)
