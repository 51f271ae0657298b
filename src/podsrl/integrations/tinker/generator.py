"""The service as a generator: tokens as they were sampled, with the log-probs of the weights that drew them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import torch

from podsrl.errors import LostGenerator, UsageError
from podsrl.generate.base import EngineStats, Generator, Request, Sampling
from podsrl.generate.vllm.sampling import drawn_prompt, new_completion, num_drawn, rollout_seed
from podsrl.integrations.tinker.service import Service
from podsrl.lib.watch import Key, Watch
from podsrl.types import Rollout


class TinkerGenerator(Generator):
    """Samples from the newest weights of a service.

    The rollouts of a request that begin with its prompt are one request of the service, which reads the prompt once;
    its random numbers are named by the group, by the first index and by their number.

    Args:
        service: which also trains.
        seed: with a request, names its random numbers.
        timeout_seconds: longest time in which nothing ends.
    """

    abilities = frozenset({"join", "start", "beside"})

    def __init__(self, service: Service, *, seed: int, timeout_seconds: float) -> None:
        self.version = 0
        self.peak_kv_bytes = 0
        self.stats = EngineStats()
        self._service, self._seed, self._timeout_seconds = service, seed, timeout_seconds
        self._sampler: Any = None
        self._open: dict[Future[Any], tuple[Request, Sequence[int], int]] = {}

    @property
    def num_unfinished(self) -> int:  # type: ignore[override]
        return sum(len(indices) for _, indices, _ in self._open.values())

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        wanted = list(requests)
        if watch is not None:
            raise UsageError("a service shows nobody its rollouts while they run: wanted no watch")
        running = {(request.id, index) for request, indices, _ in self._open.values() for index in indices}
        for request in wanted:
            if request.sampling.stop_strings or request.sampling.min_p:
                raise UsageError(f"request {request.id!r} has stop_strings or min_p, which Tinker's API has not")
            for key in ((request.id, index) for index in request.indices):
                if key in running:
                    raise UsageError(f"rollout {key[1]} of request {key[0]!r} runs already, or is asked for twice")
                running.add(key)
        self._service.ready()
        if self._sampler is None:
            self._sampler = self._service.sampler()
        for request in wanted:
            for indices in _together(request):
                first = indices[0]
                future = self._service.sample(
                    self._sampler,
                    drawn_prompt(request, first),
                    len(indices),
                    _options(request.sampling, num_drawn(request, first), rollout_seed(self._seed, request, first)),
                )
                self._open[future] = request, indices, self.version
        self.stats.slots_used = max(self.stats.slots_used, self.num_unfinished)

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        if not self._open:
            return []
        most = self._timeout_seconds if seconds is None else seconds
        ended, _ = wait(self._open, timeout=most, return_when=FIRST_COMPLETED)
        if not ended and seconds is None:
            self._open.clear()
            raise LostGenerator(
                f"rollouts.generator = 'tinker': no sample came within options.tinker.timeout_seconds = {most:g}",
                is_final=True,
            )
        found = list[Rollout]()
        for future in [each for each in self._open if each in ended]:  # in the order of the requests
            found += self._read(future, *self._open.pop(future))
        return found

    def abort(self, ids: Iterable[str | Key]) -> None:
        """What runs ends by itself: the API has no verb to stop it."""

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """The service has trained the weights itself: from now on their newest state is sampled from.

        Before the first request there may be no model yet; it is made then.

        Raises:
            UsageError: weights of a trainer in this process, which a service cannot take.
        """
        if next(iter(named_tensors), None) is not None:
            raise UsageError(
                "rollouts.generator = 'tinker' samples from the weights that the service trains, and takes no others: "
                "use another generator to evaluate a model's folder"
            )
        self._sampler = self._service.sampler() if version else None
        self.version = version

    def describe(self, requests: Sequence[Request]) -> str:
        return f"Tinker's API at {self._service.url}, model {self._service.base_model}, rank {self._service.rank}"

    def close(self) -> None:
        self._open.clear()
        self._service.close()

    def _read(self, future: Future[Any], request: Request, indices: Sequence[int], version: int) -> Iterable[Rollout]:
        try:
            sequences = self._service.samples_of(future)
        except BaseException:
            self._open.clear()
            raise
        if len(sequences) != len(indices):
            raise LostGenerator(
                f"rollouts.generator = 'tinker' gave {len(sequences)} of {len(indices)} samples", is_final=True
            )
        self.stats.prompt_tokens += len(drawn_prompt(request, indices[0]))
        for index, sequence in zip(indices, sequences, strict=True):
            tokens, logprobs = list(sequence.tokens), sequence.logprobs
            _check(request, tokens, logprobs, sequence.stop_reason)
            self.stats.tokens += len(tokens)
            self.stats.forwarded += len(tokens)
            yield new_completion(request, index, tokens, logprobs, sequence.stop_reason, version)


def _together(request: Request) -> list[Sequence[int]]:
    """Indices that can be one request of the service: all that begin with the prompt."""
    behind = [index for index in request.indices if index in request.starts]
    plain = [index for index in request.indices if index not in request.starts]
    return [*([plain] if plain else []), *([index] for index in behind)]


def _options(sampling: Sampling, num_new: int, seed: int) -> dict[str, Any]:
    """Fields of the service's sampling parameters; of stop tokens None means those of the model."""
    return {
        "max_tokens": num_new,
        "seed": seed % 2**31,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "stop": None if sampling.stop_token_ids is None else list(sampling.stop_token_ids),
    }


def _check(request: Request, tokens: Sequence[int], logprobs: Sequence[float] | None, reason: str) -> None:
    """A sample has what training needs of it."""
    ends = request.sampling.stop_token_ids
    fault = ""
    if logprobs is None or len(logprobs) != len(tokens):
        fault = "without a log-prob of each token"
    elif reason == "stop" and ends and (not tokens or tokens[-1] not in ends):
        fault = f"that ended by a stop token and does not hold it (wanted one of {list(ends)} as its last token)"
    if fault:
        raise LostGenerator(f"rollouts.generator = 'tinker' gave a sample {fault}", is_final=True)
