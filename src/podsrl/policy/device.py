"""Choose the device of a model, and report what is worth knowing about the choice."""

from __future__ import annotations

from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError

from podsrl.config.schema import ModelConfig
from podsrl.lib.machine import processor_facts
from podsrl.lib.model_files import shapes_in
from podsrl.policy.adapter_folder import base_of
from podsrl.policy.source import find_device, model_folder

SMALL_FOR_A_GPU = 200_000
"""Below this many weights "auto" stays on the CPU. A rule of thumb from counting, not from measurement.

A decode step of a model with three layers launches some 150 kernels, which take about 8 µs each: 1.2 ms, however few
rows there are. In that time a CPU core at 50 GFLOP/s multiplies 200,000 weights with 150 rows.
"""
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""What Linux calls a processor's instructions for it."""


def choose_device(config: ModelConfig) -> torch.device:
    """The device of a run's model; "auto" keeps a small model on the CPU. UsageError: it is unknown, or not there."""
    device = find_device(config.device)
    return torch.device("cpu") if _small_size(config, device) else device


def device_notes(config: ModelConfig) -> tuple[str, ...]:
    """What a person should know about the choice, one line each. UsageError: as `choose_device`."""
    device = find_device(config.device)
    if size := _small_size(config, device):
        return (
            f"model.device = 'auto' keeps this model on the CPU: it has {size:,} weights, and under "
            f"{SMALL_FOR_A_GPU:,} a GPU takes about as long to start its kernels as a CPU to compute; "
            "model.device = 'cuda' uses the GPU all the same",
        )
    if config.dtype == "bfloat16" and not computes_in_bfloat16(device):
        return (
            f"model.dtype = 'bfloat16': the {'GPU' if device.type == 'cuda' else 'processor'} has no instructions for "
            "it, and takes several times as long as in 'float32', which 'auto' chooses here",
        )
    if device.type == "cuda" and config.dtype == "float32":
        return (
            "model.dtype = 'float32' leaves the GPU's tensor cores unused; 'bfloat16' uses them, and halves the "
            "memory of weights and key-values",
        )
    return ()


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for it; a processor of which nothing is known (not Linux) counts as one."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    facts = processor_facts()
    known = (facts.get("flags") or facts.get("Features") or "").split()  # of x86, of ARM
    return not known or not _BFLOAT16.isdisjoint(known)


def _small_size(config: ModelConfig, device: torch.device) -> int:
    """Weights of a model that "auto" keeps off a GPU; 0 for any other model, and for one that is not downloaded yet."""
    if config.device != "auto" or device.type != "cuda":
        return 0
    source = base_of(config) or config
    try:
        shapes = shapes_in(sorted(Path(model_folder(source.path)).glob("*.safetensors")))
    except (OSError, SafetensorError):  # loading the weights will report what is wrong
        return 0
    size = sum(prod(shape) for shape in shapes.values())
    return size if size < SMALL_FOR_A_GPU else 0
