"""Model weights from a folder, the hub, or this package."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.lib.devices import avoid_cudnn_attention
from podsrl.lib.model_files import shapes_in
from podsrl.policy.adapter_folder import ADAPTER_CONFIG, ADAPTER_WEIGHTS, base_of, naming_base, quiet_peft
from podsrl.policy.device import choose_device
from podsrl.policy.quantized import check_4bit, keep_layout, quantisation
from podsrl.policy.source import check_local, code_options, model_folder, quiet_bars, quiet_log, reading


def load_model(config: ModelConfig) -> Any:
    """Load the causal language model onto its device; for a folder of adapters, their base with the adapters merged.

    Raises:
        UsageError: the weights cannot be read, are incomplete or have adapters on top; the device, the attention kernel
            or what 4-bit weights need is missing; 4-bit weights are asked of a folder of adapters.
    """
    device = choose_device(config)
    avoid_cudnn_attention(device)
    if (base := base_of(config)) is not None:
        return _merged(config, base)
    check_local(config.path)
    if config.load_in_4bit:
        check_4bit(device)
    options = _options(config, device)
    table = quiet_log("transformers.modeling_utils")  # of weights that do not fit: `_check_complete` names them
    with reading(config, "weights "), quiet_bars(), table:
        model, info = AutoModelForCausalLM.from_pretrained(
            model_folder(config.path),
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, in one line
            **options,
        )
    if getattr(model, "_hf_peft_config_loaded", False):  # of a name on the hub; `base_of` sees folders
        raise UsageError(
            f"model.path = {config.path!r} holds adapters, which transformers put on a base: download it and "
            f"name the folder, without config.json to merge them, or without {ADAPTER_CONFIG} for a whole model alone"
        )
    _check_complete(config.path, info)
    _check_end_tokens(config.path, model)
    if config.load_in_4bit:
        keep_layout(model)
        return model
    return model.to(device)


def _check_complete(path: str, info: Mapping[str, Any]) -> None:
    """UsageError: some weights would be random. Weights that the model does not use are a warning."""
    cure = "use complete weights, and the config.json that was saved with them"
    if mismatched := sorted(info["mismatched_keys"]):
        name, found, wanted = mismatched[0]
        raise UsageError(
            f"model.path = {path!r}: {name} has the shape {tuple(found)}, and config.json wants {tuple(wanted)} "
            f"({len(mismatched)} such weights); {cure}"
        )
    if missing := sorted(info["missing_keys"]):
        raise UsageError(
            f"model.path = {path!r}: lacks {len(missing)} of its weights ({missing[0]} …), which would be random; "
            f"{cure}"
        )
    if unused := sorted(info["unexpected_keys"]):
        warnings.warn(
            f"model.path = {path!r}: {len(unused)} of its weights have no place in the model that config.json "
            f"describes, and are left out ({unused[0]} …)",
            stacklevel=3,
        )


def _check_end_tokens(path: str, model: Any) -> None:
    found = model.generation_config.eos_token_id
    for number in found if isinstance(found, list) else [found]:
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
            raise UsageError(
                f"model.path = {path!r}: its generation_config.json has eos_token_id = {found!r}; wanted the number of "
                "a token, or a list of them"
            )


def outline(config: ModelConfig) -> Any:
    """The model's modules without memory for weights (on torch's meta device), from its config alone.

    Raises:
        UsageError: the config cannot be read, or describes no causal language model.
    """
    source = base_of(config) or config
    with naming_base(config):
        check_local(source.path)
        options = code_options(source)
        with reading(source), quiet_bars():
            description = AutoConfig.from_pretrained(model_folder(source.path), revision=source.revision, **options)
            with torch.device("meta"):
                return AutoModelForCausalLM.from_config(description, **options)


def generation_config(config: ModelConfig) -> Any:
    """What the model's files name as its end tokens (`eos_token_id`), without the model; UsageError: unreadable."""
    source = base_of(config) or config
    folder = model_folder(source.path)
    with reading(source):
        try:
            found = GenerationConfig.from_pretrained(folder, revision=source.revision)
        except OSError:  # there is no such file
            options = code_options(source)
            found = AutoConfig.from_pretrained(folder, revision=source.revision, **options).get_text_config()
        _check_end_tokens(source.path, SimpleNamespace(generation_config=found))
        return found


def _options(config: ModelConfig, device: torch.device) -> dict[str, Any]:
    dtype = getattr(torch, config.dtype)
    options: dict[str, Any] = {"revision": config.revision, "dtype": dtype, "use_safetensors": True}
    options |= code_options(config)
    if config.attention != "auto":
        options["attn_implementation"] = config.attention
    if config.load_in_4bit:
        options["quantization_config"] = quantisation(dtype)
    if config.load_in_4bit or device.type == "cuda":  # straight to the GPU: no second copy in the machine's own memory
        options["device_map"] = {"": device}
    return options


def _merged(config: ModelConfig, base: ModelConfig) -> Any:
    if config.load_in_4bit:
        raise UsageError(
            f"model.path = {config.path!r} holds adapters, which cannot be merged into 4-bit weights: "
            "leave out model.load_in_4bit, or give the base model"
        )
    with naming_base(config):
        model = load_model(base)
    folder = Path(model_folder(config.path))
    with reading(config, "adapters "), quiet_peft():
        from peft import PeftModel, get_peft_model_state_dict

        adapted = PeftModel.from_pretrained(model, str(folder))
        wanted = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
        found = set(shapes_in([folder / ADAPTER_WEIGHTS]))
    if difference := sorted(wanted ^ found):
        what = "lacks" if difference[0] in wanted else "does not match its base: it also holds"
        raise UsageError(f"model.path = {config.path!r}: {what} {len(difference)} adapter weights ({difference[0]} …)")
    return adapted.merge_and_unload()
