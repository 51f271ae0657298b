"""Load the policy that a config names, and check beforehand what the config asks of the machine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from podsrl.config.schema import LoraConfig, RunConfig
from podsrl.errors import UnavailableError, UsageError
from podsrl.lib.devices import avoid_cudnn_attention
from podsrl.lib.matmul import check_option
from podsrl.policy.adapter_folder import check_is_whole
from podsrl.policy.device import choose_device
from podsrl.policy.dropout import Setting, configured_dropout, describe, is_alike_in_training, turn_off_dropout
from podsrl.policy.lora import AdaptedPolicy, adapter_layers, add_adapters, find_targets, plain_copy
from podsrl.policy.policy import Policy, Tokenizer
from podsrl.policy.quantized import check_4bit, check_adam_8bit
from podsrl.policy.source import find_device, model_folder
from podsrl.policy.tokenizer import check_vocabulary
from podsrl.policy.weights import load_model, outline


def load_policy(config: RunConfig, tokenizer: Tokenizer, *, model: Any = None) -> Policy:
    """Load the policy that a config's sections `model` and `lora` name, onto its device; the seed decides new adapters.

    `model` is a loaded model instead of `config.model`'s. It is changed in place: adapters are added, and its dropout
    is turned off if `model.dropout` says so. UsageError: see `load_model`; the tokenizer has tokens beyond the model's;
    `lora.targets` match no module, or `model.path` is a folder of adapters; the model cannot checkpoint gradients.
    """
    base, lora = config.model.path, config.lora
    if model is None:
        if lora is not None:
            check_is_whole(config.model)
        model = load_model(config.model)
    else:
        base = model.name_or_path or "?"
        avoid_cudnn_attention(model.device)
    check_vocabulary(tokenizer, model.get_input_embeddings().weight.shape[0], base)
    settings, notes = _settle_dropout(model, config)
    policy = Policy(model, tokenizer) if lora is None else _adapted(model, tokenizer, config, lora, base)
    policy.dropout, policy.notes = settings, notes
    if config.model.gradient_checkpointing:
        _keep_inputs_only(model)
    return policy


def _settle_dropout(model: Any, config: RunConfig) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Turn dropout off unless the config keeps it. The dropout that the config had, and what a person should know."""
    if config.model.dropout == "as_configured":
        found = describe(configured_dropout(model))
        ask = 'model.dropout = "off" trains what is sampled'
        note = f"warning: the update has dropout ({found}) and generation has none; {ask}"
        return (), (note,) if found else ()
    settings = turn_off_dropout(model)
    notes = []
    if settings:
        notes.append(
            f"dropout of the model's config ({describe(settings)}) is off in the update, as in generation; "
            'model.dropout = "as_configured" keeps it'
        )
    if not is_alike_in_training(model):
        notes.append(
            f"warning: {type(model).__name__} computes other numbers in training mode even without dropout, so the "
            "update's probabilities are not those of generation"
        )
    return tuple(settings), tuple(notes)


def _adapted(model: Any, tokenizer: Tokenizer, config: RunConfig, lora: LoraConfig, base: str) -> AdaptedPolicy:
    targets = find_targets(model, lora.targets, lora.rank)
    generator = plain_copy(model, targets)
    adapted = add_adapters(model, lora, base=model_folder(base), revision=config.model.revision, seed=config.seed)
    # a difference would leave a matrix of the generator shared or stale
    if strange := set(targets) ^ set(adapter_layers(adapted)):
        raise UsageError(
            f"lora.targets = {list(lora.targets)}: PEFT reads it otherwise at {min(strange)}; name modules"
        )
    return AdaptedPolicy(adapted, tokenizer, generator)


def _keep_inputs_only(model: Any) -> None:
    if not model.supports_gradient_checkpointing:
        raise UsageError(f"model.gradient_checkpointing: {type(model).__name__} does not support it; leave it out")
    # transformers renamed it, and the old name warns where there is a new one.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    # transformers also adds a hook that makes the embedding's output require a gradient. Only the reentrant form needs
    # it, and it would keep the generator from its hand-written decode step.
    model.disable_input_require_grads()


def check_model_options(config: RunConfig, *, has_model: bool = False) -> None:
    """Check that the machine has what a config asks for, before any model is read.

    That is: device, attention kernel, matmul library, 4-bit weights, 8-bit Adam, and modules for `lora.targets`.

    UsageError: an option that is not available here, and what it needs. With `has_model` the run trains a loaded model.
    """
    device = find_device(config.model.device) if has_model else choose_device(config.model)
    if config.model.attention == "flash_attention_2":
        _check_flash_attention(device, config.model.dtype)
    check_option(config.model.matmul)
    if config.model.load_in_4bit:
        check_4bit(device)
    if config.optim.name == "adamw_8bit":
        check_adam_8bit(device)
    if config.lora is not None and not has_model:
        check_is_whole(config.model)
        find_targets(outline(config.model), config.lora.targets, config.lora.rank)


def _check_flash_attention(device: torch.device, dtype: str) -> None:
    wants = []
    if find_spec("flash_attn") is None:
        wants.append("the package flash-attn (pip install flash-attn)")
    if device.type != "cuda":
        wants.append(f"a CUDA GPU (model.device is {device})")
    if dtype == "float32":
        wants.append('model.dtype = "bfloat16" or "float16"')
    if wants:
        raise UnavailableError(
            f"model.attention = 'flash_attention_2' needs {' and '.join(wants)}; \"auto\" runs everywhere"
        )
