"""Requests as vLLM's sampling parameters, and its answers as completions: the same in this process and over HTTP.

One rollout is one request of vLLM (n = 1), so each ends, is aborted and is ordered by itself; prefix caching reads the
prompt of a group once.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from podsrl.errors import PodsError, UsageError
from podsrl.generate.base import BROKEN, Ending, Request, Sampling, nothing_of
from podsrl.lib.seeds import derive
from podsrl.lib.watch import Key, Watch
from podsrl.types import Rollout

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 2.0
"""vLLM silently raises a lower one to 0.01 and takes none above 2."""
_ENDINGS = {"stop": Ending("done", "stop"), "length": Ending("done", "length"), "abort": Ending()}


def start_of(request: Request, index: int) -> Rollout:
    """What there is of a rollout; nothing of one that begins with its prompt."""
    return request.starts.get(index) or nothing_of(request, index)


def rollout_seed(seed: int, request: Request, index: int) -> int:
    """What names a rollout's random numbers: 63 bits of the generator's seed, the group's id and the index.

    The tokens behind a start have random numbers of their own, named by its length too: vLLM counts those that it draws
    from 0.

    Example:
        >>> whole, later = Request("q", (5,), 9), Request("q", (5,), 1, first_index=8)
        >>> rollout_seed(0, whole, 8) == rollout_seed(0, later, 8) != rollout_seed(1, whole, 8)
        True
    """
    length = len(start_of(request, index).token_ids)
    return derive(seed, f"{request.id}>{length}" if length else request.id, index)


def drawn_prompt(request: Request, index: int) -> list[int]:
    """What vLLM reads before it draws: the prompt, and what there is of the rollout.

    Example:
        >>> start = replace(nothing_of(Request("q", (5,), 1), 0), token_ids=(7, 8), logprobs=(0, 0), given=((0, 2),))
        >>> drawn_prompt(Request("q", (5,), 1, Sampling(max_new_tokens=9), starts={0: start}), 0)
        [5, 7, 8]
    """
    return [*request.prompt_ids, *start_of(request, index).token_ids]


def num_drawn(request: Request, index: int) -> int:
    """Tokens that vLLM draws of a rollout, at most."""
    return request.sampling.max_new_tokens - len(start_of(request, index).token_ids)


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
        "max_tokens": num_drawn(request, index),
        "stop_token_ids": list(sampling.stop_token_ids or ()),
        "stop": list(sampling.stop_strings),
        "include_stop_str_in_output": True,  # so that a stop token's own text counts too, as everywhere in podsrl
        "skip_special_tokens": False,
        "ignore_eos": sampling.stop_token_ids is not None,  # else it stops where tokenizer and generation config say
        "logprobs": 0,
    }


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


def check_requests(
    requests: Sequence[Request],
    max_tokens: int,
    cure: str,
    *,
    running: Container[Key] = (),
    watch: Watch | None = None,
) -> None:
    """Check that vLLM can serve these.

    Args:
        max_tokens: most tokens of a prompt with its completion.
        cure: how vLLM takes more.
        running: rollouts that run.

    Raises:
        UsageError: a rollout that runs already, or is too long; as of `check_drawing`; stop strings behind a start,
            which vLLM looks for in what it draws alone; a watch.
    """
    if watch is not None:
        raise UsageError("vLLM shows nobody its rollouts while they run: wanted no watch, or the built-in engine")
    seen = set[Key]()
    for request in requests:
        check_drawing(request.sampling)
        if any(start.token_ids for start in request.starts.values()) and request.sampling.stop_strings:
            raise UsageError(
                f"request {request.id!r} has starts and stop_strings = {request.sampling.stop_strings}, which vLLM "
                "looks for behind the starts alone: use stop_token_ids, or rollouts.generator = 'engine'"
            )
        num_prompt, num_new = len(request.prompt_ids), request.sampling.max_new_tokens
        if num_prompt + num_new > max_tokens:
            raise UsageError(
                f"request {request.id!r} needs {num_prompt} prompt tokens + max_new_tokens = {num_new}, which exceeds "
                f"vLLM's max_model_len of {max_tokens}: shorten one of them, or {cure}"
            )
        for key in ((request.id, index) for index in request.indices):
            if key in running or key in seen:
                raise UsageError(
                    f"rollout {key[1]} of request {key[0]!r} runs already, or is asked for twice: give each rollout of "
                    "a group its own index (Request.first_index)"
                )
            seen.add(key)


def new_completion(
    request: Request,
    index: int,
    token_ids: Sequence[int],
    logprobs: Sequence[float | None],
    finish_reason: str | None,
    version: int,
    versions: Sequence[int] = (),
) -> Rollout:
    """A rollout as vLLM answered it, behind what there was of it.

    It ends before the first log-prob that is no number, and has failed then: the model's logits were none.

    Args:
        token_ids: those that vLLM drew.
        logprobs: one per token, with vLLM started with `logprobs_mode="processed_logprobs"`.
        finish_reason: vLLM's: "stop", "length" or "abort"; None for a rollout that never ran.
        version: of the weights that drew the tokens.
        versions: one per token, where several did.

    Raises:
        PodsError: another finish reason.
    """
    ending = _ENDINGS.get(finish_reason or "abort")
    if ending is None:
        raise PodsError(
            f"vLLM ended rollout {index} of {request.id!r} with finish reason {finish_reason!r}; wanted "
            f"{', '.join(_ENDINGS)}: see vLLM's own messages"
        )
    found: list[float] = []
    for value in logprobs:
        if value is None or not math.isfinite(value):
            ending = BROKEN
            break
        found.append(float(value))
    start, drawn = start_of(request, index), (tuple(versions) or (version,) * len(found))[: len(found)]
    of_start = start.version if start.num_drawn > 0 else next(iter(drawn), version)
    every = (start.versions or (of_start,) * len(start.token_ids)) + drawn
    return replace(
        start,
        group_id=request.id,
        token_ids=start.token_ids + tuple(map(int, token_ids[: len(found)])),
        logprobs=start.logprobs + tuple(found),
        version=next(iter(every), version),
        versions=every if len(set(every)) > 1 else (),
        **ending._asdict(),
    )


def new_cache_salt() -> str:
    """Of requests under new weights: vLLM reuses keys and values of equal prompts with the same salt only.

    It is random, since a server outlives the trainers that count versions from 0.
    """
    return secrets.token_hex(8)
