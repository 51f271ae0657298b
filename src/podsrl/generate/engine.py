"""The in-process engine: requests -> completions, with the model's own forward.

    rows, waves     requests are cut into rows (one a completion), and rows into waves of at most `num_slots`
    prefill         every distinct prompt of a wave is read once; its keys and values are copied to its rows
    step            forward one token a row -> sample -> finished rows leave, live ones close ranks -> repeat

Any Hugging Face decoder whose layers keep full keys and values runs on it. Weights are used in place: a trainer that
updates the same model has nothing to copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.generate.cache import new_prompt_cache
from podsrl.generate.request import Request, Sampling
from podsrl.generate.wave import Row, Wave
from podsrl.types import Completion


class Engine:
    """Generates completions for requests from one model.

    Args:
        model: a Hugging Face causal language model; used in place, on its own device.
        num_slots: rows generated at once; None: all rows of a call together.
        seed: with a request's id, a rollout's index and a token's position it decides every random number, so the same
            request gives the same tokens in any batch.

    Example:
        >>> engine = Engine(model, seed=1)                                     # doctest: +SKIP
        >>> [c.token_ids for c in engine.generate([Request("a", (5, 7), 2)])]  # doctest: +SKIP
    """

    def __init__(self, model: Any, *, num_slots: int | None = None, seed: int = 0) -> None:
        if num_slots is not None and num_slots < 1:
            raise UsageError(f"num_slots = {num_slots}: wanted at least 1, or None for no limit")
        self.model = model
        self.num_slots = num_slots
        self.seed = seed
        self.version = 0
        self.peak_kv_bytes = 0
        """Largest key-value memory held so far, in bytes; set it to 0 to measure anew."""
        self._aborted: set[str] = set()

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Yield every completion as it finishes.

        Raises:
            UsageError: before anything is generated: a repeated id, or a prompt that with its limit exceeds the model's
                window.
        """
        wanted = list(requests)
        self._check(wanted)
        self._aborted.clear()
        return self._run(wanted)

    def abort(self, ids: Iterable[str]) -> None:
        """End these requests' unfinished completions, at the next step, with finish reason "aborted"."""
        self._aborted.update(ids)

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Take over new weights; those that already share memory with the engine's model are not copied.

        Raises:
            UsageError: a name that the model does not have, or another shape.
        """
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in named_tensors:
                if name not in own or own[name].shape != tensor.shape:
                    shape = tuple(own[name].shape) if name in own else "no such parameter"
                    raise UsageError(f"weight {name!r} of shape {tuple(tensor.shape)}: the engine's model has {shape}")
                if own[name].data_ptr() != tensor.data_ptr():
                    own[name].copy_(tensor)
        self.version = version

    def _run(self, requests: list[Request]) -> Iterator[Completion]:
        was_training = self.model.training
        self.model.eval()
        try:
            for sampling, same in groupby(requests, key=lambda request: request.sampling):
                rows = [Row(request, index) for request in same for index in range(request.num_rollouts)]
                for start in range(0, len(rows), self.num_slots or len(rows)):
                    yield from self._run_wave(rows[start : start + (self.num_slots or len(rows))], sampling)
        finally:
            self.model.train(was_training)

    def _run_wave(self, rows: Sequence[Row], sampling: Sampling) -> Iterator[Completion]:
        wave = Wave(self.model, rows, sampling, self.seed)
        self.peak_kv_bytes = max(self.peak_kv_bytes, wave.num_bytes)
        version = self.version
        while wave.num_live > 0:
            for row, tokens, logprobs, reason in wave.step(self._aborted):
                yield Completion(
                    request_id=row.request.id,
                    index=row.index,
                    token_ids=tuple(tokens),
                    logprobs=tuple(logprobs),
                    finish_reason=reason,
                    version=version,
                )

    def _check(self, requests: Sequence[Request]) -> None:
        seen: set[str] = set()
        window = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        for request in requests:
            if request.id in seen:
                raise UsageError(f"request id {request.id!r} is used twice: give every request of a call its own id")
            seen.add(request.id)
            total = len(request.prompt_ids) + request.sampling.max_new_tokens
            if window is not None and total > window:
                raise UsageError(
                    f"request {request.id!r} needs {len(request.prompt_ids)} prompt tokens + max_new_tokens = "
                    f"{request.sampling.max_new_tokens}, but the model's window holds {window}: shorten one of them"
                )
        if requests:
            longest = max(len(request.prompt_ids) + request.sampling.max_new_tokens for request in requests)
            new_prompt_cache(self.model, longest)
