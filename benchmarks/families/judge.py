"""Every family of causal language models in transformers, tried small: engine and update against plain forwards.

A family is built with two layers of width 32 and weights drawn large, so that a token's probability depends on all
tokens before it and on their positions. The engine samples rows of different lengths together, longer than every window
that the configuration has; each completion is then scored by one forward of its whole row alone, without a cache. The
result is a `Verdict`.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.models import batch_of
from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling
from podsrl.types import Rollout
from podsrl.update import TokenLogprobs

MAX_WEIGHTS = 20_000_000
"""A family whose smallest configuration has more is not built."""
WINDOW = 16
"""Of families with sliding, local or chunked attention."""
GAP = 1e-3
"""Nats. Float32 sums in another order differ by far less; a token at a wrong position differs by far more."""
_PROMPTS, _SHORT_PROMPTS, _NEW_TOKENS = (3, 31, 20), (2, 9, 5), 6
_VOCABULARY = 99

_SIZES: dict[str, Any] = {
    "vocab_size": _VOCABULARY,
    **dict.fromkeys(("hidden_size", "d_model", "moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "d_ff", "dff", "dim_ff", "decoder_ffn_dim", "encoder_ffn_dim"), 64
    ),
    **dict.fromkeys(("num_hidden_layers", "decoder_layers", "encoder_layers", "num_key_value_heads"), 2),
    **dict.fromkeys(("num_attention_heads", "decoder_attention_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("head_dim", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"), 8),
    **dict.fromkeys(("v_head_dim", "linear_key_head_dim", "linear_value_head_dim", "ssm_state_size"), 8),
    **dict.fromkeys(("mamba_d_state", "mamba_n_heads", "mamba_d_head", "state_size", "linear_num_value_heads"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "linear_num_key_heads"), 4),
    **dict.fromkeys(("num_experts_per_tok", "index_n_heads"), 2),
    **dict.fromkeys(("n_shared_experts", "n_group", "topk_group"), 1),
    **dict.fromkeys(("sliding_window", "window_size", "attention_chunk_size", "local_attention"), WINDOW),
    **dict.fromkeys(("keep_window_size", "index_head_dim"), WINDOW),
    "index_topk": 8,
    "rotary_dim": 4,
    "max_position_embeddings": 64,
    "is_decoder": True,
}
"""Set where a family's configuration has the option; a window only where it is on by default."""
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": WINDOW,
}
_MIXED = ["sliding_attention", "full_attention"]
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon, alibi": ("falcon", {"alibi": True}),
    "llama, longrope": ("llama", {"rope_parameters": _LONGROPE}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "phi3, longrope": ("phi3", {"rope_parameters": _LONGROPE, "original_max_position_embeddings": WINDOW}),
    "lfm2, convolutions": ("lfm2", {"layer_types": ["conv", "full_attention"]}),
    "qwen2, sliding window": ("qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "layer_types": _MIXED}),
}
"""Name -> family, and options that change what its decode step computes."""
_OWN: dict[str, dict[str, Any]] = {
    "falcon_h1": {"mamba_d_ssm": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "mamba2": {"num_heads": 8},
    "xmod": {"default_language": "en_XX"},
    "xlnet": {"d_head": 8},
    "zaya": {"num_experts_per_tok": 1},
}
"""Options without which a family is not built at these sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for one family."""

    family: str
    architecture: str
    why_not_built: str | None = None
    forward: str | None = None
    """The engine's decode step, "fast" or "model"; None where the engine refused the model."""
    why_refused: str | None = None
    limit: str | None = None
    """Why the engine refused rows longer than the window, where it accepted shorter ones."""
    longest: int = 0
    """Tokens of the longest sampled row."""
    engine_gap: float | None = None
    """Nats: largest difference of a sampled token's log-probability from the plain forward's."""
    update: str | None = None
    """How rows lie in the update: "packed", or "padded" and why."""
    update_gap: float | None = None
    """The same for the update's log-probabilities."""
    sensitivity: float = 0.0
    """Nats: largest change of a sampled token's log-probability when its row lacks the first token."""


def family_names() -> list[str]:
    """All families of the installed transformers, and `VARIANTS`."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *VARIANTS})


def judge(name: str) -> Verdict:
    """Try one of `family_names()`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = small_model(name)
        except Exception as error:  # a family's code may raise any type at sizes that do not suit it
            return Verdict(family=name, architecture="", why_not_built=_in_a_line(error))
        return _judged(name, model)


def small_model(name: str) -> Any:
    """The family with two layers of width 32, in float32 and evaluation mode, with the same weights at every call.

    UsageError: more than `MAX_WEIGHTS` weights. The family's own code may raise any other exception.
    """
    from transformers import AutoModelForCausalLM

    config = small_config(name)
    with torch.device("meta"):
        num_weights = AutoModelForCausalLM.from_config(config).num_parameters()
    if num_weights > MAX_WEIGHTS:
        raise UsageError(
            f"{num_weights:,} weights at the smallest sizes that were tried (it holds more than a decoder)"
        )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.25)
    return model


def small_config(name: str) -> Any:
    """The configuration of `small_model`."""
    from transformers import CONFIG_MAPPING

    family, changes = VARIANTS.get(name, (name, {}))
    kind = CONFIG_MAPPING[family]
    default = kind()
    sizes = {key: value for key, value in _SIZES.items() if _is_set(default, key)}
    if hasattr(default, "kv_lora_rank"):  # latent attention has keys and values of its own for every head
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    if _is_set(default, "layer_types") and (layer_types := _first_of_each_kind(default.layer_types or ())):
        sizes |= {"layer_types": layer_types, "num_hidden_layers": len(layer_types)}
    options = copy.deepcopy({**sizes, **_OWN.get(family, {}), **changes})  # a configuration writes into what it gets
    return kind(**options, pad_token_id=0, eos_token_id=1, bos_token_id=2)


def _first_of_each_kind(layer_types: Sequence[str]) -> list[str]:
    """The first layers, until there are two and one of every kind."""
    return list(layer_types[: max(2, *(1 + layer_types.index(kind) for kind in layer_types))]) if layer_types else []


def _is_set(default: Any, key: str) -> bool:
    """Whether a configuration has the option, and lets it be set; a sliding window only where there is one."""
    if isinstance(getattr(type(default), default.attribute_map.get(key, key), None), property):
        return False
    return hasattr(default, key) and (key != "sliding_window" or default.sliding_window is not None)


def _judged(name: str, model: Any) -> Verdict:
    architecture = type(model).__name__
    try:
        _plain(model, _prompt(5), 1)
    except Exception as error:  # as above
        why = f"its own forward fails at these sizes ({_in_a_line(error)})"
        return Verdict(family=name, architecture=architecture, why_not_built=why)
    try:
        engine = Engine(model, seed=1)
    except UsageError as error:
        return Verdict(family=name, architecture=architecture, why_refused=str(error))
    limit, lengths = None, _PROMPTS
    try:
        completions = _sample(engine, lengths)
    except UsageError as error:
        limit, lengths = str(error), _SHORT_PROMPTS
        completions = _sample(engine, lengths)
    prompts = [_prompt(length) for length in lengths]
    rows = [(*prompts[int(each.group_id)], *each.token_ids) for each in completions]
    plain = [_plain(model, row, len(each.token_ids)) for row, each in zip(rows, completions, strict=True)]
    shifted = [_plain(model, row[1:], len(each.token_ids)) for row, each in zip(rows, completions, strict=True)]
    update, trained = _update_logprobs(model, prompts, completions)
    return Verdict(
        family=name,
        architecture=architecture,
        forward=engine.forward.name,
        limit=limit,
        longest=max(map(len, rows)),
        engine_gap=_gap([each.logprobs for each in completions], plain),
        update=update,
        update_gap=_gap(trained, plain),
        sensitivity=_gap([tuple(each.tolist()) for each in shifted], plain),
    )


def _sample(engine: Engine, lengths: Sequence[int]) -> list[Rollout]:
    sampling = Sampling(max_new_tokens=_NEW_TOKENS, stop_token_ids=())
    requests = [Request(str(i), _prompt(length), 2, sampling) for i, length in enumerate(lengths)]
    return sorted(engine.generate(requests), key=lambda each: (each.group_id, each.index))


def _prompt(length: int) -> tuple[int, ...]:
    """Tokens 3 .. `_VOCABULARY` - 1, different ones for every length."""
    return tuple(3 + (7 * place + 11 * length) % (_VOCABULARY - 3) for place in range(length))


@torch.no_grad()
def _plain(model: Any, row: Sequence[int], num_last: int) -> Tensor:
    """[num_last] log-probabilities of a row's last tokens, from a forward of that row alone."""
    logits: Tensor = model(input_ids=torch.tensor([row]), use_cache=False).logits[0]
    table = logits[-num_last - 1 : -1].double().log_softmax(-1)
    return table.gather(-1, torch.tensor(row[-num_last:])[:, None]).squeeze(-1)


def _update_logprobs(
    model: Any, prompts: Sequence[Sequence[int]], completions: Sequence[Rollout]
) -> tuple[str, list[Tensor]]:
    """How the rows lie in the update, and its log-probabilities of each completion."""
    rows = [prompts[int(each.group_id)] for each in completions]
    batch = batch_of(rows, completions, [1.0] * len(completions))
    forward = TokenLogprobs(model)
    with torch.no_grad():
        logprobs, _ = forward(batch)
    own = [row[mask].double() for row, mask in zip(logprobs, batch.target_mask, strict=True)]
    return forward.layout, own


def _gap(found: Sequence[Sequence[float] | Tensor], plain: Sequence[Tensor]) -> float:
    """The largest difference; infinite where one is not a number."""
    pairs = zip(found, plain, strict=True)
    gaps = [(torch.as_tensor(own, dtype=torch.float64) - other).abs().max() for own, other in pairs]
    worst = float(torch.stack(gaps).max())
    return worst if math.isfinite(worst) else math.inf


def _in_a_line(error: Exception) -> str:
    if isinstance(error, UsageError):
        return str(error)
    lines = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return f"{type(error).__name__}: {lines[:120]}{' …' if len(lines) > 120 else ''}"
