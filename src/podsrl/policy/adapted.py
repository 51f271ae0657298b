"""The policy under low-rank adapters: a frozen model, and the matrices that the generator has of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from podsrl.policy.adapter_folder import ADAPTER_WEIGHTS
from podsrl.policy.adapters import ADAPTER, adapter_layers, base_weight, merged_weight, save_adapter_config
from podsrl.policy.files import Write, copy_into, read_weights
from podsrl.policy.policy import Full, Policy, as_it_is, count_weights
from podsrl.policy.quantized import is_4bit


class AdaptedPolicy(Policy):
    """A frozen model with low-rank adapters; only these are trained, saved and loaded.

    Args:
        model: PEFT's model, from `add_adapters`.
        tokenizer: saved beside the adapters.
        generator: from `plain_copy`, whose adapted matrices are brought up to date by a sync.
    """

    is_adapted = True

    def __init__(self, model: Any, tokenizer: Any, generator: Any) -> None:
        super().__init__(model, tokenizer)
        self.generator_model = generator.requires_grad_(False)
        self._layers = adapter_layers(model)

    @property
    def description(self) -> str:
        config, trained = self.model.peft_config[ADAPTER], sum(tensor.numel() for tensor in self.weights().values())
        base = " in 4 bits" if any(is_4bit(layer.get_base_layer()) for layer in self._layers.values()) else ""
        return (
            f"LoRA r = {config.r}, alpha = {config.lora_alpha:g} on {len(self._layers)} modules{base}: "
            f"{trained:,} of {count_weights(self.generator_model) + trained:,} weights are trained"
        )

    @torch.no_grad()
    def sampled_weights(self, full: Full = as_it_is) -> Iterator[tuple[str, Tensor]]:
        plain = self.model.get_base_model()
        for name, _ in self.generator_model.named_parameters():
            owner, _, kind = name.rpartition(".")
            yield name, _sampled(self._layers.get(owner), plain.get_submodule(owner), kind, full)

    @contextmanager
    def reference(self) -> Iterator[nn.Module]:
        for layer in self._layers.values():
            layer.enable_adapters(False)
        try:
            yield self.model
        finally:
            for layer in self._layers.values():
                layer.enable_adapters(True)

    def weights(self) -> dict[str, Tensor]:
        return {
            f"base_model.model.{name}.{kind}.weight": getattr(layer, kind)[ADAPTER].weight.detach()
            for name, layer in self._layers.items()
            for kind in ("lora_A", "lora_B")
        }

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        tensors = self.weights() if weights is None else weights
        save_file(dict(tensors), folder / ADAPTER_WEIGHTS, {"format": "pt"})
        save_adapter_config(self.model, folder)
        self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path, write: Write = copy_into) -> None:
        read_weights([folder / ADAPTER_WEIGHTS], self.weights(), write)


def _sampled(layer: Any, module: Any, kind: str, full: Full) -> Tensor:
    """One parameter of the plain model: of a layer with an adapter, or of any other module."""
    if layer is not None and kind == "weight":
        return merged_weight(layer, full)
    base = module if layer is None else layer.get_base_layer()
    return base_weight(base, full) if kind == "weight" else full(getattr(base, kind).detach())
