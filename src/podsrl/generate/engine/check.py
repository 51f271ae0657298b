"""What is refused before anything is generated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from podsrl.errors import UsageError
from podsrl.generate.base import Request
from podsrl.generate.engine.forward.prefill import new_prompt_cache
from podsrl.generate.engine.row_limit import row_limit


def check_requests(model: Any, requests: Sequence[Request], running: Sequence[Request]) -> None:
    """Refuse requests that the model cannot serve.

    Args:
        model: a Hugging Face causal language model.
        requests: new ones.
        running: those that are unfinished.

    Raises:
        UsageError: a repeated id, two requests that run at once and would draw the same random numbers, a prompt that
            with its limit exceeds `row_limit`, a token outside the vocabulary, or a model whose cache is not supported
            over that length.
    """
    seen = {request.id for request in running}
    by_stream: dict[str, list[Request]] = {}
    for request in running:
        by_stream.setdefault(request.random_stream, []).append(request)
    limit = row_limit(model)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    for request in requests:
        if request.id in seen:
            raise UsageError(f"request id {request.id!r} is used twice: give every request that runs its own id")
        seen.add(request.id)
        others = by_stream.setdefault(request.random_stream, [])
        _check_stream(request, others)
        others.append(request)
        low, high = min(request.prompt_ids), max(request.prompt_ids)
        if not 0 <= low <= high < vocabulary:
            raise UsageError(
                f"request {request.id!r} has prompt tokens from {low} to {high}, but the model knows 0 to "
                f"{vocabulary - 1}: is this prompt from another tokenizer?"
            )
        if limit is not None and _total(request) > limit.tokens:
            raise UsageError(
                f"request {request.id!r} needs {len(request.prompt_ids)} prompt tokens + max_new_tokens = "
                f"{request.sampling.max_new_tokens}, which exceeds {limit.name}: shorten one of them"
            )
    if requests:
        new_prompt_cache(model, max(map(_total, requests)))


def _check_stream(request: Request, others: Iterable[Request]) -> None:
    for other in others:
        first, last = max(request.indices[0], other.indices[0]), min(request.indices[-1], other.indices[-1])
        if first <= last:
            raise UsageError(
                f"request {request.id!r} with first_index = {request.first_index}: rollouts {first} to {last} of "
                f"stream {request.random_stream!r} run already in request {other.id!r}, and would draw the same "
                "tokens: start after its last index, or give another stream"
            )


def _total(request: Request) -> int:
    return len(request.prompt_ids) + request.sampling.max_new_tokens
