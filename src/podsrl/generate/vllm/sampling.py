"""Requests as vLLM's sampling parameters, and its answers as completions: the same in this process and over HTTP.

One rollout is one request of vLLM (n = 1), so each ends, is aborted and is ordered by itself; prefix caching reads the
prompt of a group once.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from podsrl.errors import PodsError, UsageError
from podsrl.generate.base import Request, Sampling
from podsrl.lib.seeds import derive
from podsrl.types import Completion, FinishReason

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 2.0
"""vLLM silently raises a lower one to 0.01 and takes none above 2."""
_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "aborted"}


def rollout_seed(seed: int, request: Request, index: int) -> int:
    """What names a rollout's random numbers: 63 bits of the generator's seed, the request's stream and the index.

    Example:
        >>> whole, later = Request("q", (5,), 9), Request("q+8", (5,), 1, first_index=8, stream="q")
        >>> rollout_seed(0, whole, 8) == rollout_seed(0, later, 8) != rollout_seed(1, whole, 8)
        True
    """
    return derive(seed, request.random_stream, index)


def rollout_options(request: Request, index: int, seed: int) -> dict[str, Any]:
    """Fields of one rollout that `vllm.SamplingParams` and the body of `/v1/completions` have in common.

    `logprobs` is 0: the drawn token's alone. Stop strings are looked for in the text with special tokens spelled out.

    Example:
        >>> rollout_options(Request("q", (5,), 2, Sampling(top_k=1)), 1, seed=0)["top_k"]
        1
    """
    sampling = request.sampling
    return {
        "n": 1,
        "seed": rollout_seed(seed, request, index),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "max_tokens": sampling.max_new_tokens,
        "stop_token_ids": list(sampling.stop_token_ids or ()),
        "stop": list(sampling.stop_strings),
        "include_stop_str_in_output": True,  # so that a stop token's own text counts too, as everywhere in podsrl
        "skip_special_tokens": False,
        "ignore_eos": sampling.stop_token_ids is not None,  # else it stops where tokenizer and generation config say
        "logprobs": 0,
    }


def drawn_of(request: Request, index: int) -> Request:
    """What vLLM draws of a rollout: what there is of it stands behind the prompt.

    The tokens behind a start have random numbers of their own: vLLM counts those that it draws from 0.

    Raises:
        UsageError: stop strings, which vLLM looks for in what it draws alone.

    Example:
        >>> from podsrl.types import Begun
        >>> start = Begun(index=0, token_ids=(7, 8), logprobs=(0, 0), version=0, given=((0, 2),))
        >>> drawn = drawn_of(Request("q", (5,), 1, Sampling(max_new_tokens=9), starts={0: start}), 0)
        >>> drawn.prompt_ids, drawn.sampling.max_new_tokens
        ((5, 7, 8), 7)
    """
    if index not in request.starts:
        return request
    ids = request.starts[index].token_ids
    if request.sampling.stop_strings:
        raise UsageError(
            f"request {request.id!r} has starts and stop_strings = {request.sampling.stop_strings}, which vLLM looks "
            "for behind the starts alone: use stop_token_ids, or rollouts.generator = 'engine'"
        )
    return replace(
        request,
        prompt_ids=request.prompt_ids + ids,
        sampling=replace(request.sampling, max_new_tokens=request.sampling.max_new_tokens - len(ids)),
        stream=f"{request.random_stream}>{len(ids)}",
        starts={},
    )


def whole_of(request: Request, drawn: Completion) -> Completion:
    """The completion of what `drawn_of` gave, behind what there was of the rollout."""
    start = request.starts.get(drawn.index)
    if start is None:
        return drawn
    before = start.versions or (start.version if start.num_drawn > 0 else drawn.version,) * len(start.token_ids)
    versions = before + (drawn.version,) * len(drawn.token_ids)
    return replace(
        drawn,
        token_ids=start.token_ids + drawn.token_ids,
        logprobs=start.logprobs + drawn.logprobs,
        version=versions[0] if versions else drawn.version,
        versions=versions if len(set(versions)) > 1 else (),
        given=start.given,
    )


def check_drawing(sampling: Sampling) -> None:
    """Check that vLLM draws as `sampling` says.

    Raises:
        UsageError: a temperature that vLLM does not take, or `min_p` with `top_p`, which it applies in another order.
    """
    if not MIN_TEMPERATURE <= sampling.temperature <= MAX_TEMPERATURE:
        raise UsageError(
            f"temperature = {sampling.temperature}: vLLM wants {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g} (for greedy "
            "decoding set top_k = 1)"
        )
    if sampling.min_p > 0 and sampling.top_p < 1:
        raise UsageError(
            f"min_p = {sampling.min_p} with top_p = {sampling.top_p}: vLLM applies min_p first, which keeps other "
            "tokens than top_p first; set one of the two"
        )


def new_completion(
    request: Request,
    index: int,
    token_ids: Sequence[int],
    logprobs: Sequence[float | None],
    finish_reason: str | None,
    version: int,
) -> Completion:
    """A rollout as vLLM answered it.

    A completion ends before the first log-prob that is no number, and is "invalid" then: the model's logits were none.

    Args:
        logprobs: one per token, with vLLM started with `logprobs_mode="processed_logprobs"`.
        finish_reason: vLLM's: "stop", "length" or "abort"; None for a rollout that never ran.
        version: of the weights that made the first token.

    Raises:
        PodsError: another finish reason.
    """
    reason = _REASONS.get(finish_reason or "abort")
    if reason is None:
        raise PodsError(
            f"vLLM ended rollout {index} of {request.id!r} with finish reason {finish_reason!r}; wanted "
            f"{', '.join(_REASONS)}: see vLLM's own messages"
        )
    found: list[float] = []
    for value in logprobs:
        if value is None or not math.isfinite(value):
            reason = "invalid"
            break
        found.append(float(value))
    return Completion(
        request_id=request.id,
        index=index,
        token_ids=tuple(map(int, token_ids[: len(found)])),
        logprobs=tuple(found),
        finish_reason=reason,
        version=version,
    )


def new_cache_salt() -> str:
    """Of requests under new weights: vLLM reuses keys and values of equal prompts with the same salt only.

    It is random, since a server outlives the trainers that count versions from 0.
    """
    return secrets.token_hex(8)
