"""Low-rank adapters through PEFT: where they go, how they begin, and the policy that trains them.

Source: Hu et al. 2021 (LoRA), equation 3: W + (alpha / r) B A.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from podsrl.config.schema import LoraConfig
from podsrl.errors import UsageError, nearest
from podsrl.lib.seeds import derive
from podsrl.policy.adapter_folder import ADAPTER_WEIGHTS, quiet_peft
from podsrl.policy.policy import Full, Policy, Tokenizer, Write, as_it_is, copy_into, count_weights, read_weights
from podsrl.policy.quantized import dequantised, is_4bit, quiet_import

ADAPTER = "default"
"""PEFT's name of the one adapter; it is in no file."""
ALL_LINEAR = "all-linear"


def find_targets(model: Any, targets: Sequence[str], rank: int = 1) -> list[str]:
    """Names of the modules of a transformers model that get an adapter; see `choose_targets`. No weight is read.

    UsageError: also where `rank` is above the smaller side of every one of them, so that it can be of no use.
    """
    modules, head = dict(model.named_modules()), model.get_output_embeddings()
    names = choose_targets(
        targets,
        [name for name, module in modules.items() if isinstance(module, nn.Linear | Conv1D)],
        {name: type(module).__name__ for name, module in modules.items()},
        head=next((name for name, module in modules.items() if module is head), ""),
        is_tied=head is not None and getattr(head, "weight", None) is model.get_input_embeddings().weight,
    )
    most = max((min(_sides(modules[name])) for name in names), default=rank)
    if rank > most:
        raise UsageError(
            f"lora.rank = {rank}: the matrices that get an adapter have a smaller side of {most} or less, and a larger "
            f"rank can do nothing that {most} cannot; wanted at most {most}"
        )
    return names


def _sides(module: Any) -> tuple[int, int]:
    return (module.nx, module.nf) if isinstance(module, Conv1D) else (module.in_features, module.out_features)


def choose_targets(
    targets: Sequence[str], linears: Collection[str], modules: Mapping[str, str], *, head: str, is_tied: bool
) -> list[str]:
    """Full names of the modules that get an adapter, in the model's order.

    `targets` are ends of names, at a dot, or "all-linear" alone: all `linears` but the output `head` ("": there is
    none). `modules` are full names of any modules with their types. UsageError: a target that ends no module's name
    (the message says the nearest), or names a module that is not linear, or a head whose weight is the embedding's.

    Example:
        >>> linears = ["layers.0.q_proj", "layers.0.mlp.up_proj", "lm_head"]
        >>> choose_targets(["all-linear"], linears, {}, head="lm_head", is_tied=True)
        ['layers.0.q_proj', 'layers.0.mlp.up_proj']
        >>> choose_targets(["q_proj"], linears, {}, head="lm_head", is_tied=True)
        ['layers.0.q_proj']
    """
    if tuple(targets) == (ALL_LINEAR,):
        return [name for name in linears if name != head]
    known, found = set(linears), set[str]()
    for target in targets:
        if target == ALL_LINEAR:
            raise UsageError(f"lora.targets: {ALL_LINEAR!r} stands for all of them, so it stands alone")
        hint = nearest(target, {name.rpartition(".")[2] for name in linears})
        matched = [name for name in (*linears, *modules) if f".{name}".endswith(f".{target}")]
        if not matched:
            raise UsageError(f"lora.targets: {target!r} matches no module of this model.{hint}")
        for name in matched:
            if name not in known:
                raise UsageError(
                    f"lora.targets: {target!r} matches {name}, a {modules[name]}; wanted linear layers.{hint}"
                )
        found.update(matched)
    if is_tied and head in found:
        raise UsageError(
            "lora.targets names the output head, but this model's head is its embedding: an adapter there would untie "
            "them; leave it out"
        )
    return [name for name in linears if name in found]


def add_adapters(model: Any, lora: LoraConfig, *, base: str, revision: str | None, seed: int) -> Any:
    """Put adapters into a model, in place, and freeze everything else.

    Their type is `adapter_dtype`. The first factor of each adapter is drawn as in PEFT (Kaiming uniform), by a
    generator that depends only on the seed and the module's name; the second factor is 0, so that the model's outputs
    are unchanged at first.

    `base` and `revision` of the model are written to adapter_config.json. The result is PEFT's model around it.
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
        for factor in (layer.lora_A, layer.lora_B):
            factor.to(adapter_dtype(model.dtype, model.device))
        _draw(layer.lora_A[ADAPTER].weight, seed, name)
    return adapted


def adapter_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The type of adapters in a model of this type: float32, but of a bfloat16 model on a GPU bfloat16.

    There a product in float32 takes longer than that of the frozen matrix. No small step is rounded away in bfloat16
    either, because the optimizer steps float32 copies (`podsrl.update.optimizer`).
    """
    is_16_bit = dtype == torch.bfloat16 and device.type == "cuda"
    return dtype if is_16_bit else torch.promote_types(dtype, torch.float32)


def adapter_layers(adapted: Any) -> dict[str, Any]:
    """Name of a module in the plain model -> its layer with an adapter."""
    from peft.tuners.lora import LoraLayer

    return {name: module for name, module in adapted.get_base_model().named_modules() if isinstance(module, LoraLayer)}


def merged_weight(layer: Any, full: Callable[[Tensor], Tensor]) -> Tensor:
    """W + (alpha / r) B A of one layer, summed in float32 at least and rounded once to W's type.

    `full` turns a sharded parameter into a whole one. For 4 bits the type is that of W dequantised.
    """
    weight = base_weight(layer.get_base_layer(), full)
    first, second = (full(factor[ADAPTER].weight.detach()) for factor in (layer.lora_A, layer.lora_B))
    first, second = (factor.to(torch.promote_types(factor.dtype, torch.float32)) for factor in (first, second))
    product = torch.mm(second, first).mul_(layer.scaling[ADAPTER])
    return (product.T if layer.fan_in_fan_out else product).add_(weight).to(weight.dtype)


def base_weight(module: Any, full: Callable[[Tensor], Tensor]) -> Tensor:
    """A module's weight as the plain model has it."""
    return dequantised(module) if is_4bit(module) else full(module.weight.detach())


@torch.no_grad()
def _draw(weight: Tensor, seed: int, name: str) -> None:
    generator = torch.Generator().manual_seed(derive(seed, "adapters", name))
    drawn = torch.empty(weight.shape, dtype=torch.float32)  # on the CPU: every device begins with the same numbers
    weight.copy_(nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator))


def save_adapter_config(adapted: Any, folder: Path) -> None:
    """Write adapter_config.json, as PEFT reads it; the same config gives the same bytes."""
    config = copy.copy(adapted.peft_config[ADAPTER])
    config.inference_mode = True  # whoever loads it for training says so
    config.target_modules = sorted(config.target_modules)  # a set, whose order changes from process to process
    config.save_pretrained(folder)


def plain_copy(model: Any, owned: Collection[str]) -> Any:
    """A second model in evaluation mode that shares all tensors with the first, except the weights of `owned` modules.

    Call it before adapters are added, because they change a model in place. 4-bit linear layers are dequantised in the
    copy. Shared parameters require a gradient as long as the model's do.
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


class AdaptedPolicy(Policy):
    """A frozen model with low-rank adapters; only the adapters are trained, saved and loaded.

    Args:
        model: PEFT's model, from `add_adapters`.
        tokenizer: saved beside the adapters.
        generator: from `plain_copy`; a sync updates its adapted matrices.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, generator: Any) -> None:
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
        """The starting model: `model` with its adapters off while the context is open."""
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
    """One parameter of the plain model: merged where its layer has an adapter."""
    if layer is not None and kind == "weight":
        return merged_weight(layer, full)
    base = module if layer is None else layer.get_base_layer()
    return base_weight(base, full) if kind == "weight" else full(getattr(base, kind).detach())
