"""Which models the hand-written step computes exactly."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_FAMILIES = ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM")
_FIXED_ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary types whose frequencies do not depend on the sequence."""


def why_not_fast(model: Any) -> str | None:
    """Say what keeps a model from the hand-written step; None: nothing does.

    Example:
        >>> why_not_fast(torch.nn.Linear(1, 1))
        'Linear is none of Qwen2ForCausalLM, Qwen3ForCausalLM, LlamaForCausalLM'
    """
    name = type(model).__name__
    if name not in _FAMILIES or not type(model).__module__.startswith("transformers.models."):
        return f"{name} is none of {', '.join(_FAMILIES)}"
    return _unusual_config(model) or _altered_module(model) or _unusual_parameter(model)


def _unusual_config(model: Any) -> str | None:
    config, rotary = model.config, model.model.rotary_emb
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act!r}, not 'silu'"
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        return "a layer has no full attention"
    if rotary.rope_type not in _FIXED_ROPES or 2 * len(rotary.inv_freq) != model.model.layers[0].self_attn.head_dim:
        return f"its rotary positions of type {rotary.rope_type!r} depend on the length or turn part of a head"
    return None


def _altered_module(model: Any) -> str | None:
    """Somebody exchanged a module (quantised, LoRA, compiled) or hooked into one."""
    for path, module in model.named_modules():
        kind = type(module)
        is_own = kind.__module__ == type(model).__module__ or kind.__name__ == "SiLUActivation"
        if not is_own and kind not in (nn.Linear, nn.Embedding, nn.ModuleList, nn.SiLU):
            return f"its {path} is a {kind.__name__}"
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return f"its {path or 'forward'} has a hook or a forward of its own"
    return None


def _unusual_parameter(model: Any) -> str | None:
    tensors = [parameter.data for parameter in model.parameters()]
    if any(type(tensor) is not Tensor for tensor in tensors):
        return "its parameters are sharded or quantised"
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) > 1:
        return "its parameters have different types or devices"
    if model.device.type == "cpu" and model.dtype != torch.float32:
        return f"it is {model.dtype} on a CPU, not float32"
    return None
