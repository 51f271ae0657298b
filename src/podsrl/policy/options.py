"""What a config asks of the machine, checked before any model is read."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from podsrl.config.schema import RunConfig
from podsrl.errors import UnavailableError
from podsrl.lib.matmul import check_option
from podsrl.policy.adapter_folder import check_is_whole
from podsrl.policy.adapters import find_targets
from podsrl.policy.device import choose_device
from podsrl.policy.quantized import check_4bit, check_adam_8bit
from podsrl.policy.source import find_device
from podsrl.policy.weights import outline


def check_model_options(config: RunConfig, *, has_model: bool = False) -> None:
    """See that device, attention kernel, matmul library, 4-bit weights, 8-bit Adam and the adapters' targets exist.

    Args:
        config: of a run.
        has_model: the run is given a loaded model, so `model.path` is not the one that is trained.

    Raises:
        UsageError: the option that cannot be had here, and what it wants.

    Example:
        >>> check_model_options(RunConfig())
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
        find_targets(outline(config.model), config.lora.targets)


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
