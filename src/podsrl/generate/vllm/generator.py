"""vLLM as the generator, within this process; with `scale.generators`, that is a child of the run's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate.base import EngineStats, Generator, Request, Sampling
from podsrl.generate.vllm import start
from podsrl.generate.vllm.handover import with_tied
from podsrl.generate.vllm.order import Priorities
from podsrl.generate.vllm.sampling import (
    check_requests,
    drawn_prompt,
    new_cache_salt,
    new_completion,
    rollout_options,
)
from podsrl.lib.watch import Key, Watch
from podsrl.types import Rollout


@dataclass(slots=True, eq=False)
class _Rollout:
    """One request of vLLM."""

    request: Request
    index: int
    priority: int
    inner: str = ""
    """vLLM's own name for it."""

    @property
    def key(self) -> Key:
        return self.request.id, self.index


class VLLM(Generator):
    """Generates with vLLM. `make_vllm` makes one.

    Args:
        llm: a `vllm.LLM` with priorities and processed log-probs.
        seed: of the rollouts' random numbers.
        scheduler: `rollouts.scheduler`; vLLM takes the refill order of it.
        max_tokens: most tokens of a prompt with its completion.
        tied: name of a weight -> its other names (`tied_names`).
    """

    abilities = frozenset({"join", "start", "abort_rollouts", "partial", "load", "proof"})

    def __init__(
        self, llm: Any, *, seed: int, scheduler: str, max_tokens: int, tied: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.version = 0
        self.stats = EngineStats()
        self._llm, self._seed, self._scheduler, self._max_tokens, self._tied = llm, seed, scheduler, max_tokens, tied
        self._num_slots: int = llm.llm_engine.vllm_config.scheduler_config.max_num_seqs
        self._priorities = Priorities(scheduler)
        self._salt = new_cache_salt()
        self._running: dict[str, _Rollout] = {}  # by the name that vLLM is given
        self._ended: list[Rollout] = []
        self._num_asked = 0
        llm.llm_engine.set_weight_version("0")

    @property
    def num_unfinished(self) -> int:  # type: ignore[override]
        """Rollouts that wait, run, or have ended and come with the next `poll`."""
        return len(self._running) + len(self._ended)

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        wanted = list(requests)
        self._check(wanted, running={one.key for one in self._running.values()}, watch=watch)
        priorities = self._priorities.of(wanted)
        before = set(self._running)
        try:
            for request, index in [(each, index) for each in wanted for index in each.indices]:
                self._ask(_Rollout(request, index, priorities[request.id, index]))
        except UsageError:
            self._drop([name for name in self._running if name not in before])
            raise

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        if self._running and not self._ended:
            self._step()
        found, self._ended = self._ended, []
        return found

    def abort(self, ids: Iterable[str | Key]) -> None:
        wanted = set(ids)
        names = [name for name, one in self._running.items() if one.request.id in wanted or one.key in wanted]
        if not names or self._llm is None:
            return
        from vllm.v1.engine import FinishReason

        states = [self._llm.llm_engine.output_processor.request_states[self._running[name].inner] for name in names]
        outputs = [state.make_request_output([], None, FinishReason.ABORT, None) for state in states]
        self._ended += map(self._completion, self._drop(names), outputs)

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Sample from these weights from now on.

        What has a token goes on behind the keys and values that it has; where the memory is full, vLLM reads a rollout
        that it had put off again, with the weights of then.

        Raises:
            LostGenerator: vLLM does not take the weights.
        """
        named_tensors = with_tied(named_tensors, self._tied)
        copies = ((name, tensor.detach().clone()) for name, tensor in named_tensors)  # it keeps a layer's
        engine = self._llm.llm_engine
        core = engine.engine_core.engine_core if self._running else None
        try:
            if core is not None:
                core.pause_scheduler("keep", clear_cache=False)
                while core.batch_queue:  # a step that is computed, with the weights until now
                    self._step()
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": copies})
            engine.set_weight_version(str(version))
            if core is not None:
                core.resume_scheduler()
        except Exception as error:  # as in `_step`
            raise LostGenerator(f"vLLM does not take the weights of version {version}: {error!r}") from error
        self.version, self._salt = version, new_cache_salt()
        states = engine.output_processor.request_states if self._running else {}
        waiting = [k for k, one in self._running.items() if not states[one.inner].detokenizer.num_output_tokens()]
        for rollout in self._drop(waiting):  # they would read prompts by the old salt
            self._ask(rollout)

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        probe = _Rollout(Request("first token", tuple(prompt_ids), 1, Sampling(max_new_tokens=1)), 0, -1)
        self._ask(probe, logprobs=1)
        while (output := self._step(probe)) is None:
            pass
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

    def _check(self, requests: Sequence[Request], **running: Any) -> None:
        check_requests(requests, self._max_tokens, "raise options.vllm.max_model_len", **running)

    def _ask(self, rollout: _Rollout, **changes: Any) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._num_asked += 1
        request, name = rollout.request, str(self._num_asked)
        options = rollout_options(request, rollout.index, self._seed) | changes
        params = SamplingParams(
            **options, detokenize=bool(options["stop"]), output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True
        )
        prompt = {"prompt_token_ids": drawn_prompt(request, rollout.index), "cache_salt": self._salt}
        try:
            rollout.inner = self._llm.llm_engine.add_request(name, prompt, params, priority=rollout.priority)
        except Exception as error:  # as in `_step`
            raise UsageError(f"request {request.id!r}: vLLM does not take it: {error}") from None
        self._running[name] = rollout

    def _drop(self, names: Sequence[str]) -> list[_Rollout]:
        """End these in vLLM, which tells nobody their tokens."""
        if names:  # a list without ids aborts all in some of vLLM's interfaces
            self._llm.llm_engine.abort_request(names)
        return [self._running.pop(name) for name in names]

    def _step(self, probe: _Rollout | None = None) -> Any:
        """One more step of vLLM; returns the output of the probe, where that has ended."""
        if self._llm is None:
            raise PodsError("this vLLM is closed: nothing can be generated")
        try:
            with start.torch_numbers_kept():
                outputs = self._llm.llm_engine.step()
        except Exception as error:  # vLLM's own types differ between its versions
            self._running.clear()
            raise LostGenerator(f"vLLM failed: {type(error).__name__}: {error}; its own messages say why") from error
        self.stats.steps += 1
        found = None
        for output in outputs:
            rollout = self._running.pop(output.request_id, None) if output.finished else None
            if rollout is not None and rollout is probe:
                found = output
            elif rollout is not None:
                self._ended.append(self._completion(rollout, output))
        return found

    def _completion(self, rollout: _Rollout, output: Any) -> Rollout:
        """Of what vLLM put out."""
        end, ids = output.outputs[0], output.outputs[0].token_ids
        logprobs = [table[token].logprob for table, token in zip(end.logprobs or (), ids, strict=True)]
        versions = [int(span.version) for span in end.weight_versions or () for _ in range(span.start, span.end)]
        if ids:
            self.stats.prompt_tokens += len(output.prompt_token_ids) - (output.num_cached_tokens or 0)
        self.stats.tokens += len(ids)
        self.stats.forwarded += len(ids)
        return new_completion(rollout.request, rollout.index, ids, logprobs, end.finish_reason, self.version, versions)
