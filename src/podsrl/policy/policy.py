"""The policy: what is trained, what the generator samples from, and what a checkpoint holds.

Goes in: a config. Comes out: a `Policy`, whose model is trained as it is, or an `AdaptedPolicy`, whose model is frozen
but for low-rank adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from podsrl.config.schema import LoraConfig, ModelConfig, RunConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.policy.adapter_folder import ADAPTER_WEIGHTS
from podsrl.policy.adapters import (
    ADAPTER,
    adapter_layers,
    add_adapters,
    base_weight,
    find_targets,
    merged_weight,
    save_adapter_config,
)
from podsrl.policy.files import Write, check_shapes, copy_into, read_weights, shapes_in
from podsrl.policy.generator import plain_copy
from podsrl.policy.quantized import is_4bit
from podsrl.policy.source import BUILTIN_PREFIX, model_folder, quiet_bars
from podsrl.policy.tokenizer import check_vocabulary
from podsrl.policy.weights import load_model

Full = Callable[[Tensor], Tensor]


def as_it_is(tensor: Tensor) -> Tensor:
    """The `full` of parameters that are whole already."""
    return tensor


def load_policy(config: RunConfig, tokenizer: Any, *, model: Any = None) -> Policy:
    """The policy that a config names, on its device.

    Args:
        config: its sections model and lora, and the seed, which the adapters' first values depend on.
        tokenizer: of the model.
        model: an already loaded one instead of `config.model`'s; adapters go into it in place.

    Raises:
        UsageError: see `load_model`; a tokenizer with tokens beyond the model's; adapters that match no module; a model
            that cannot keep only its blocks' inputs.

    Example:
        >>> policy = load_policy(RunConfig(), load_tokenizer(ModelConfig()))               # doctest: +SKIP
        >>> policy.description                                                             # doctest: +SKIP
        'all 129,216 weights are trained'
    """
    base = config.model.path
    if model is None:
        model = load_model(config.model)
    else:
        base = model.name_or_path or "?"
    check_vocabulary(tokenizer, model.get_input_embeddings().weight.shape[0], base)
    lora = config.lora
    policy = Policy(model, tokenizer) if lora is None else _adapted(model, tokenizer, config, lora, base)
    if config.model.gradient_checkpointing:
        _keep_inputs_only(model)
    return policy


def _adapted(model: Any, tokenizer: Any, config: RunConfig, lora: LoraConfig, base: str) -> AdaptedPolicy:
    targets = find_targets(model, lora.targets)
    generator = plain_copy(model, targets)
    base = model_folder(base) if base.startswith(BUILTIN_PREFIX) else base
    adapted = add_adapters(model, lora, base=base, revision=config.model.revision, seed=config.seed)
    if strange := set(targets) ^ set(adapter_layers(adapted)):  # a matrix of the generator would be shared, or stale
        raise UsageError(
            f"lora.targets = {list(lora.targets)}: PEFT reads it otherwise at {min(strange)}; name modules"
        )
    return AdaptedPolicy(adapted, tokenizer, generator)


class Policy:
    """A model all of whose weights are trained.

    Args:
        model: a causal language model of transformers.
        tokenizer: saved beside it.
    """

    is_adapted = False
    """Whether adapters are trained instead of the weights."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model: Any = model.eval()
        """What the update forwards: the model, or PEFT's model around it."""
        self.tokenizer = tokenizer
        self.generator_model: Any = self.model
        """What the generator samples from: a plain model of transformers."""

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def description(self) -> str:
        """How much is trained, in one line."""
        return f"all {_count(self.generator_model):,} weights are trained"

    def sampled_weights(self, full: Full = as_it_is) -> Iterator[tuple[str, Tensor]]:
        """The weights that the generator must sample from, one at a time: let go of each before you ask for the next.

        Args:
            full: turns a sharded parameter into a whole one; called for the same parameters in the same order in every
                process.

        Yields:
            Name in the plain model, tensor: as trained, or merged under adapters.
        """
        for name, parameter in self.model.named_parameters():
            yield name, full(parameter.detach())

    def reference(self) -> AbstractContextManager[nn.Module]:
        """The starting model, while the context is open: `model` with its adapters off.

        Raises:
            UsageError: without adapters; the weights are then not what they were.
        """
        raise UsageError("a policy without adapters holds no reference: keep a frozen copy of the starting model")

    def weights(self) -> dict[str, Tensor]:
        """What a checkpoint holds: name -> the live tensor, which later steps change in place; tied ones once."""
        return whole_weights(self.model)

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write the policy so that transformers (or PEFT, under adapters) loads it, and the tokenizer beside it.

        Args:
            folder: made where it is not there.
            weights: whole tensors under the names of `weights()`, where the live ones are sharded.
        """
        with quiet_bars():
            self.model.save_pretrained(folder, state_dict=dict(self.weights() if weights is None else weights))
        self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path, write: Write = copy_into) -> None:
        """Take over saved weights, bit for bit, one tensor at a time.

        Families whose files name weights otherwise than the model (mixtures of experts) are read as a whole first.

        Args:
            folder: of `save`.
            write: how a whole value gets into a live tensor, where those are sharded.

        Raises:
            CheckpointError: weights of another model. Nothing has changed then.
        """
        own, files = self.weights(), sorted(folder.glob("*.safetensors"))
        if not files or set(shapes_in(files)) == set(own):
            read_weights(files, own, write)
            return
        saved = _as_loaded(folder, self.model.dtype)
        check_shapes(folder, {name: tuple(tensor.shape) for name, tensor in saved.items()}, own)
        for name, tensor in own.items():
            write(tensor, saved[name])


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
            f"{trained:,} of {_count(self.generator_model) + trained:,} weights are trained"
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


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and the buffers that are saved, as live tensors; tied ones once."""
    kept = model.state_dict()
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in tensors if name in kept}


def _sampled(layer: Any, module: Any, kind: str, full: Full) -> Tensor:
    """One parameter of the plain model: of a layer with an adapter, or of any other module."""
    if layer is not None and kind == "weight":
        return merged_weight(layer, full)
    base = module if layer is None else layer.get_base_layer()
    return base_weight(base, full) if kind == "weight" else full(getattr(base, kind).detach())


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _as_loaded(folder: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """Saved weights under the names that a loaded model has."""
    name = str(dtype).removeprefix("torch.")
    try:
        return whole_weights(
            load_model(ModelConfig.model_validate({"path": str(folder.absolute()), "dtype": name, "device": "cpu"}))
        )
    except UsageError as error:
        raise CheckpointError(str(error)) from None


def _keep_inputs_only(model: Any) -> None:
    if not model.supports_gradient_checkpointing:
        raise UsageError(f"model.gradient_checkpointing: {type(model).__name__} does not support it; leave it out")
    # The name up to transformers 5.20 or so warns in later ones.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    # It also lets a hook make the embedding's output require a gradient, which only the reentrant form wants: the hook
    # would keep the generator from its hand-written step.
    model.disable_input_require_grads()
