"""Whether a server can generate for a run: asked before any weights are read, and again with the model at hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from podsrl.errors import UnavailableError, UsageError, short
from podsrl.generate.base import Setting
from podsrl.generate.vllm.handover import DEFAULT_FOLDER, check_parent
from podsrl.generate.vllm.link import Link, Refused, Unreachable

PROBE_TOKENS = 8
PROBE_SECONDS = 120.0
"""For these tokens, behind what the server generates just now."""
_TEXT = "What is 12 + 345? Answer: 357.\n"
_REASONS = ("stop", "length", "abort")
_NO_LOGPROB = -9999.0
"""vLLM writes it for minus infinity."""
_SHAPE = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says of itself."""

    model: str
    """The name by which requests call its model."""
    max_model_len: int
    """Tokens of a prompt with its completion, at most."""
    version: str
    """Of vLLM; "" where it does not say."""
    weights: str = ""
    """What it calls its weights (`weights_name`)."""


def server_command(url: str, model: str = "MODEL", max_model_len: int | None = None) -> str:
    """The command that starts a server for a run at an address, with vLLM's build for GPUs or for CPUs.

    Example:
        >>> server_command("http://127.0.0.1:8001", "Qwen/Qwen2.5-0.5B").split(" --")[2:4]
        ['host 127.0.0.1', 'port 8001']
    """
    parts = urlsplit(url)
    length = "" if max_model_len is None else f" --max-model-len {max_model_len}"
    return (
        f"VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model {model} --host {parts.hostname} "
        f"--port {parts.port or 8000} --logprobs-mode processed_logprobs --scheduling-policy priority{length} (without "
        "a GPU also --no-enable-chunked-prefill)"
    )


def check_address(
    url: str,
    *,
    folder: str = DEFAULT_FOLDER,
    retry_seconds: float = 1.0,
    timeout_seconds: float = 1800.0,
    key_from: str = "",
) -> None:
    """`check_server` of an address, and what can be checked of the options of a `VLLMServer`.

    Raises:
        UsageError: as `check_server`, or an option that cannot be.
    """
    for name, seconds in (("retry_seconds", retry_seconds), ("timeout_seconds", timeout_seconds)):
        if not 0 < seconds < 1e6:
            raise UsageError(f"options.vllm.{name} = {seconds:g}: wanted a number of seconds above 0, under a million")
    check_parent(folder)
    link = Link(url, key_from=key_from, timeout_seconds=timeout_seconds)
    try:
        check_server(link)
    finally:
        link.close()


def check_server(link: Link) -> ServerFacts:
    """Check what can be asked of a server whatever the run: that it is there, and how it was started.

    Raises:
        UnavailableError: nothing answers.
        UsageError: it was started without a flag that a run needs, or it is no vLLM server.
    """
    try:
        facts = replace(_facts(link), weights=_check_dev_mode(link))
        _probe(link, facts)
        _check_chunks(link)
    except Unreachable as error:
        raise UnavailableError(
            f"rollouts.generator: no vLLM server answers at {link.url} ({error}); start one (MODEL as in model.path): "
            f"{server_command(link.url)}"
        ) from error
    except Refused as error:
        hint = "; set options.vllm.key_from to the variable with its key" if error.status in (401, 403) else ""
        raise UsageError(f"rollouts.generator: the server at {link.url} answers with {error}{hint}") from error
    return facts


def check_model(link: Link, facts: ServerFacts, setting: Setting) -> None:
    """Check that a server has the run's model and tokenizer, and room for its longest rollout.

    Raises:
        UsageError: it has not.
    """
    own, its = _config(setting.folder), _config(facts.model)
    window = own.get("max_position_embeddings")
    longest = setting.max_prompt_tokens + setting.max_new_tokens
    wanted = min(longest, window) if isinstance(window, int) else longest
    if facts.max_model_len < wanted:
        raise UsageError(
            f"the server at {link.url} takes {facts.max_model_len} tokens per rollout, wanted {wanted} "
            f"(rollouts.max_prompt_tokens + rollouts.max_new_tokens): start it with --max-model-len {wanted}, or "
            "lower the options"
        )
    start = f"start it with the run's model: {server_command(link.url, setting.folder, wanted)}"
    for name in ("architectures", *_SHAPE):
        if name in own and name in its and own[name] != its[name]:
            raise UsageError(
                f"the server at {link.url} has another model than the run: {name} = {short(its[name])}, wanted "
                f"{short(own[name])}; {start}"
            )
    if setting.tokenizer is None:
        return
    try:
        answer = link.ask("/tokenize", {"model": facts.model, "prompt": _TEXT, "add_special_tokens": False})
    except Refused as error:
        if error.status == 404:  # it was started without a tokenizer; prompts are token ids anyway
            return
        raise UsageError(f"the server at {link.url} answers /tokenize with {error}") from error
    except Unreachable as error:
        raise UnavailableError(f"the server at {link.url} does not answer any more ({error})") from error
    ids = setting.tokenizer.encode(_TEXT, add_special_tokens=False)
    if not isinstance(answer, dict) or answer.get("tokens") != list(ids):
        raise UsageError(
            f"the server at {link.url} has another tokenizer than the run: it reads {short(_TEXT)} as other tokens; "
            f"{start}"
        )


def vocabulary_size(setting: Setting) -> int:
    """Token ids that the run's model knows, by its config.json, else by its tokenizer."""
    size = _config(setting.folder).get("vocab_size")
    if isinstance(size, int):
        return size
    return len(setting.tokenizer) if setting.tokenizer is not None else 2**31


def weights_name(link: Link) -> str:
    """What the server calls the weights that it has; a restart forgets the name that a run gave them.

    Raises:
        Unreachable, Refused: as of `Link.ask`.
    """
    answer = link.ask("/weight_info", timeout_seconds=60)
    return str(answer.get("weight_version")) if isinstance(answer, dict) else ""


def read_choice(answer: Any, num_tokens: int, vocabulary: int) -> tuple[Sequence[int], Sequence[float | None], str]:
    """Token ids, their log-probs and the finish reason of an answer of `/v1/completions` with one choice.

    Raises:
        ValueError: it has another form, more than `num_tokens` tokens, or values that cannot be.
    """
    try:
        choice = answer["choices"][0]
        ids, reason = choice["token_ids"], choice["finish_reason"]
        logprobs = [] if choice["logprobs"] is None else choice["logprobs"]["token_logprobs"]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"no choice with token_ids, finish_reason and logprobs ({short(answer)})") from error
    if not isinstance(ids, list) or any(type(id) is not int or not 0 <= id < vocabulary for id in ids):
        raise ValueError(f"token_ids that are no list of ids below the vocabulary's size {vocabulary} ({short(ids)})")
    if not isinstance(logprobs, list) or any(
        value is not None and type(value) not in (int, float) for value in logprobs
    ):
        raise ValueError(f"token_logprobs that are no list of numbers ({short(logprobs)})")
    if len(ids) > num_tokens or len(logprobs) != len(ids):
        raise ValueError(f"{len(ids)} tokens and {len(logprobs)} log-probs, wanted as many, and at most {num_tokens}")
    if any(value is not None and value > 1e-6 for value in logprobs):
        raise ValueError(f"a log-prob above 0 ({max(value for value in logprobs if value is not None)})")
    if reason not in _REASONS or (reason == "length" and len(ids) != num_tokens) or (reason == "stop" and not ids):
        raise ValueError(f"finish_reason {short(reason)} after {len(ids)} of {num_tokens} tokens")
    return ids, [None if value is None or value <= _NO_LOGPROB else value for value in logprobs], reason


def is_abort(answer: Any) -> bool:
    """Whether an answer of `/v1/completions` is of a rollout that was ended before its time."""
    try:
        return bool(answer["choices"][0]["finish_reason"] == "abort")
    except (KeyError, IndexError, TypeError):
        return False


def _wrong(link: Link, what: str, cure: str) -> UsageError:
    return UsageError(f"rollouts.generator: the server at {link.url} {what}; {cure}: {server_command(link.url)}")


def _facts(link: Link) -> ServerFacts:
    answer = link.ask("/v1/models", timeout_seconds=10)
    try:
        model = answer["data"][0]
        name, length = model["id"], model["max_model_len"]
    except (KeyError, IndexError, TypeError):
        name = length = None
    if not isinstance(name, str) or not isinstance(length, int):
        what = "is no vLLM server: /v1/models names no model with its max_model_len"
        raise _wrong(link, what, "start one (MODEL as in model.path)")
    try:
        version = link.ask("/version", timeout_seconds=10)
    except Refused:
        version = None
    said = version.get("version") if isinstance(version, dict) else ""
    return ServerFacts(model=name, max_model_len=length, version=said if isinstance(said, str) else "")


def _check_dev_mode(link: Link) -> str:
    """The name of its weights."""
    route = "/collective_rpc"
    try:
        link.ask(route, {"method": "check_health"}, timeout_seconds=60)
        route = "/weight_info"
        return weights_name(link)
    except Refused as error:
        if error.status not in (404, 405):
            raise
        cure = "start vLLM 0.32 or newer in development mode (VLLM_SERVER_DEV_MODE=1)"
        raise _wrong(link, f"takes no weights: it has no route {route}", cure) from error


def _probe(link: Link, facts: ServerFacts) -> None:
    """One request with every field that a run's requests have.

    With top-k 1 a drawn token has probability 1, but for logits that are equal, which are rare.
    """
    num_tokens = min(PROBE_TOKENS, facts.max_model_len - 1)
    drawing = {"temperature": 1.0, "top_k": 1, "ignore_eos": True, "logprobs": 0, "return_token_ids": True}
    body = {"model": facts.model, "prompt": [1, 2, 3], "max_tokens": num_tokens, "priority": 1, **drawing}
    try:
        answer = link.ask("/v1/completions", body, timeout_seconds=PROBE_SECONDS)
        _, logprobs, _ = read_choice(answer, num_tokens, 2**31)
    except ValueError as error:
        raise UsageError(f"rollouts.generator: the server at {link.url} answers with {error}") from error
    except (Refused, Unreachable) as error:
        if isinstance(error, Refused) and error.status == 400 and "priority" in str(error).lower():
            raise _wrong(link, "takes no priorities", "start it with --scheduling-policy priority") from error
        try:
            link.ask("/health", timeout_seconds=10)
        except (Refused, Unreachable):
            raise UsageError(
                f"rollouts.generator: the engine of the server at {link.url} ended at its first request ({error}); see "
                "the server's log. vLLM for CPUs takes attention heads of 32, 64, 80, 96, 112, 128 … numbers; those of "
                "builtin:arithmetic have 16"
            ) from error
        raise
    if 2 * sum(value is not None and value > -1e-6 for value in logprobs) < num_tokens:
        what = "gives log-probs before temperature and filters"
        raise _wrong(link, what, "start it with --logprobs-mode processed_logprobs")


def _check_chunks(link: Link) -> None:
    """A CPU server whose prefill is cut into chunks dies at the first seeded request that is cut."""
    try:
        found = link.ask("/server_info?config_format=json", timeout_seconds=60)["vllm_config"]
        device, is_chunked = found["device_config"], found["scheduler_config"]["enable_chunked_prefill"]
    except (Refused, KeyError, TypeError):  # not of every release
        return
    if is_chunked and "cpu" in str(device):
        what = "runs on a CPU with chunked prefill, where seeded requests end it"
        raise _wrong(link, what, "start it with --no-enable-chunked-prefill")


def _config(folder: str) -> dict[str, Any]:
    """What a model folder's config.json says of its text model; nothing where there is none to be read."""
    try:
        found = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    inner = found.get("text_config") if isinstance(found, dict) else None
    return {**found, **inner} if isinstance(inner, dict) else found if isinstance(found, dict) else {}
