"""The model that rollouts are sampled from under adapters: plain, merged, and sharing whatever no adapter touches."""

from __future__ import annotations

import copy
from collections.abc import Collection
from itertools import chain
from typing import Any

import torch
from torch import nn

from podsrl.policy.quantized import dequantised, is_4bit


def plain_copy(model: Any, owned: Collection[str]) -> Any:
    """A second model on the same tensors, but for some modules' weights, which it holds for itself.

    Call it before adapters are put in: they change a model in place.

    Args:
        model: a causal language model of transformers; in 4 bits, its linear layers are dequantised in the copy.
        owned: names of the modules whose weight the copy has of its own, equal at first.

    Returns:
        The copy, in evaluation mode; none of its parameters requires a gradient once the model's do not.
    """
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    copied = copy.deepcopy(model, shared)
    for name, module in list(copied.named_modules()):
        if is_4bit(module):
            copied.set_submodule(name, _dequantised_layer(module))
        elif name in owned:
            module.weight = _frozen(module.weight.detach().clone())
    _forget_quantisation(copied)
    return copied.eval()


def _frozen(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def _dequantised_layer(module: Any) -> nn.Linear:
    layer = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None, device="meta")
    layer.weight, layer.bias = _frozen(dequantised(module)), module.bias
    return layer


def _forget_quantisation(model: Any) -> None:
    for name in ("hf_quantizer", "is_loaded_in_4bit", "is_quantized", "quantization_method"):
        vars(model).pop(name, None)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
