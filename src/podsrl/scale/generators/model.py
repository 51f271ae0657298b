"""A worker's model: built from the run's own model's config, without reading weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.policy.source import code_options, model_folder, reading


def new_model(description: Mapping[str, Any], config: ModelConfig, device: torch.device, dtype: str) -> Any:
    """A model of transformers from its config, on a device, in evaluation mode; its weights are random.

    Args:
        description: the config as a dictionary, with the attention kernel in "_attn_implementation".
        config: where code of the model's own comes from, with `trust_remote_code`.
        device: of the weights.
        dtype: of the weights, as torch names it.
    """
    from accelerate import init_empty_weights
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

    plain = {name: value for name, value in description.items() if name != "_attn_implementation"}
    options = code_options(config)
    with reading(config):
        if config.trust_remote_code and plain.get("auto_map"):
            own = AutoConfig.from_pretrained(model_folder(config.path), revision=config.revision, **options)
            made = type(own).from_dict(plain)
            made._name_or_path = own._name_or_path
        else:
            made = CONFIG_MAPPING[plain["model_type"]].from_dict(plain)
        with init_empty_weights(include_buffers=False):
            model = AutoModelForCausalLM.from_config(
                made, dtype=getattr(torch, dtype), attn_implementation=description["_attn_implementation"], **options
            )
    _give_memory(model, device)
    return model.to(device).eval()


def _give_memory(model: Any, device: torch.device) -> None:
    """Memory for weights that have none so far, with values that suit the engine's trial of its decode step."""
    random = torch.Generator(device).manual_seed(0)
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            made = torch.empty_like(weight, device=device)
            if made.dim() > 1:
                made.normal_(std=made.shape[-1] ** -0.5, generator=random)
            else:
                made.fill_(float(name == "weight"))
            module.register_parameter(name, nn.Parameter(made, requires_grad=False))
    model.tie_weights()


def check_carried(model: nn.Module) -> None:
    """UsageError: the model has saved tensors that are no weights, such as counts: no sync carries them."""
    saved = model.state_dict().keys()
    if named := sorted(name for name, _ in model.named_buffers() if name in saved):
        raise UsageError(
            f"scale.generators: {type(model).__name__} saves tensors that are no weights ({named[0]} …), which a "
            "generator in a process of its own would not get: use scale.generators = 0"
        )
