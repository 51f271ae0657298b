"""Low-rank adapters through PEFT: where they go, how they begin, and what a matrix is with its adapter merged into it.

Source: Hu et al. 2021 (LoRA), equation 3: W + (alpha / r) B A.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from podsrl.config.schema import LoraConfig
from podsrl.lib.lora_targets import ALL_LINEAR, choose_targets
from podsrl.lib.seeds import derive
from podsrl.policy.quantized import dequantised, is_4bit, quiet_import

ADAPTER = "default"
"""PEFT's name of the one adapter; it is in no file."""


def find_targets(model: Any, targets: Sequence[str]) -> list[str]:
    """Names of the modules that get an adapter.

    Args:
        model: a causal language model of transformers; its weights are not read.
        targets: as in `lora.targets`.

    Returns:
        Full names, in the model's order.

    Raises:
        UsageError: a target that ends no module's name (the message says the nearest), or a module that is not linear
            or shares its weights with the embedding.

    Example:
        >>> find_targets(model, ["q_proj"])[:2]                                      # doctest: +SKIP
        ['model.layers.0.self_attn.q_proj', 'model.layers.1.self_attn.q_proj']
    """
    modules, head = dict(model.named_modules()), model.get_output_embeddings()
    return choose_targets(
        targets,
        [name for name, module in modules.items() if isinstance(module, nn.Linear | Conv1D)],
        {name: type(module).__name__ for name, module in modules.items()},
        head=next((name for name, module in modules.items() if module is head), ""),
        is_tied=head is not None and head.weight is model.get_input_embeddings().weight,
    )


def add_adapters(model: Any, lora: LoraConfig, *, base: str, revision: str | None, seed: int) -> Any:
    """Put adapters into a model, in place, and freeze all else.

    Adapters are float32 where the model has 16 bits: a step is then not rounded away. The first factor of each is
    drawn as PEFT does (Kaiming uniform), by a generator that depends on the seed and the module's name alone; the
    second is 0, so that the model is at first what it was.

    Args:
        model: a causal language model of transformers.
        lora: rank, alpha, dropout and targets.
        base, revision: what adapter_config.json says the adapters belong to.
        seed: of the run.

    Returns:
        The PeftModel around it.
    """
    with quiet_import():
        import peft
    names = lora.targets
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=int(lora.alpha) if lora.alpha.is_integer() else lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=ALL_LINEAR if names == (ALL_LINEAR,) else list(names),
    )
    with quiet_peft():
        adapted = peft.get_peft_model(model, config)
    config = adapted.peft_config[ADAPTER]
    config.base_model_name_or_path, config.revision = base, revision
    for name, layer in adapter_layers(adapted).items():
        _draw(layer.lora_A[ADAPTER].weight, seed, name)
    return adapted


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Silence what a user can do nothing about, or is told otherwise."""
    with warnings.catch_warnings(), quiet_import():
        # PEFT asks transformers for something by a name that it is about to lose
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", "Found missing adapter keys", UserWarning)  # `load_model` makes it an error
        yield


def adapter_layers(adapted: Any) -> dict[str, Any]:
    """Module name in the plain model -> its layer with an adapter."""
    from peft.tuners.lora import LoraLayer

    return {name: module for name, module in adapted.get_base_model().named_modules() if isinstance(module, LoraLayer)}


def merged_weight(layer: Any, full: Callable[[Tensor], Tensor]) -> Tensor:
    """W + (alpha / r) B A of one layer, summed in the adapter's precision and rounded once.

    Args:
        layer: of `adapter_layers`.
        full: turns a sharded parameter into a whole one.

    Returns:
        In the shape and type of W; of W's dequantised type for 4 bits.
    """
    weight = base_weight(layer.get_base_layer(), full)
    first, second = (full(factor[ADAPTER].weight.detach()) for factor in (layer.lora_A, layer.lora_B))
    product = torch.mm(second, first).mul_(layer.scaling[ADAPTER])
    return (product.T if layer.fan_in_fan_out else product).add_(weight).to(weight.dtype)


def base_weight(module: Any, full: Callable[[Tensor], Tensor]) -> Tensor:
    """A module's weight as the plain model has it."""
    return dequantised(module) if is_4bit(module) else full(module.weight.detach())


@torch.no_grad()
def _draw(weight: Tensor, seed: int, name: str) -> None:
    generator = torch.Generator().manual_seed(derive(seed, "adapters", name))
    drawn = torch.empty(weight.shape, dtype=torch.float32)  # on the CPU, so that every device begins with the same
    weight.copy_(nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator))


def save_adapter_config(adapted: Any, folder: Path) -> None:
    """Write adapter_config.json, as PEFT reads it; the same config gives the same bytes."""
    config = copy.copy(adapted.peft_config[ADAPTER])
    config.inference_mode = True  # whoever loads it for training says so
    config.target_modules = sorted(config.target_modules)  # a set, whose order changes from process to process
    config.save_pretrained(folder)
