"""Random models of two layers, for tests that want one of another vocabulary or configuration."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

VOCABULARY = 99
"""Tokens of `character_tokenizer()`; ids 0, 1, 2 are <pad>, <eos>, <unk>."""


def new_model(family: str, **changes: Any) -> Any:
    """A random causal language model of 2 layers and width 32, with 4 heads on 2 key-value heads, in float32.

    Its weights are larger than usual, so that probabilities are far from uniform and depend on the context.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family,
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 64,
            "initializer_range": 0.3,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": None,
            **changes,
        },
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


class _Wide(TorchFunctionMode):
    """Who asks for float32 gets float64."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def wide(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        function = torch.Tensor.double if function is torch.Tensor.float else function
        return function(*map(wide, args), **{name: wide(value) for name, value in (kwargs or {}).items()})


def _widely(module: Any, *args: Any, **kwargs: Any) -> Any:
    with _Wide():
        return type(module).forward(module, *args, **kwargs)


def in_float64(model: Any) -> Any:
    """The model, with all that it computes in float64: norms, angles and some softmaxes are float32 without this."""
    for module in model.double().modules():
        if type(module).__module__.startswith("transformers.models."):
            module.forward = partial(_widely, module)
    return model
