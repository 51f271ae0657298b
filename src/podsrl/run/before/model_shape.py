"""A model's sizes without its weights: from the headers of its files, or from its config on the meta device.

A local folder of a known dense family is read in milliseconds, without torch. transformers builds any other model
without memory, which takes the time of its import.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.lib.model_files import check_files, shapes_in, weight_files
from podsrl.lib.packaged import PREFIX, packaged_folder

DENSE = ("llama", "mistral", "qwen2", "qwen3")
"""Families whose files hold exactly the matrices that the model multiplies with, under the model's own names."""
_WIDTHS = ("intermediate_size", "ffn_dim", "decoder_ffn_dim", "ffn_hidden_size", "n_inner", "dff")
"""What families call the width of their feed-forward part; without any it is four times the hidden size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What decides a model's memory."""

    family: str
    """transformers' model_type."""
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary: int
    window: int | None
    """Most tokens of prompt and completion together; None where the config names none."""
    parameters: Mapping[str, tuple[int, ...]]
    """Name -> shape of every weight; a tied one once."""
    linears: Mapping[str, tuple[int, int]]
    """Name -> (out, in) of every linear layer but the output head."""
    head: str = "lm_head"
    """Name of the output head. Its weight is in `parameters` unless it is the embedding."""

    @property
    def num_weights(self) -> int:
        return sum(prod(shape) for shape in self.parameters.values())

    @property
    def num_linear_weights(self) -> int:
        """Weights of the linear layers without the head: those that are quantised."""
        return sum(prod(shape) for shape in self.linears.values())

    @property
    def has_query_norms(self) -> bool:
        """Queries and keys pass a norm of their own."""
        return any("q_norm" in name for name in self.parameters)


def read_shape(config: ModelConfig) -> ModelShape:
    """The sizes of the model that a config names.

    Raises:
        UsageError: no such model, or its config cannot be read.

    Example:
        >>> read_shape(ModelConfig(path="builtin:arithmetic")).num_layers
        3
    """
    name = config.path.removeprefix("builtin:")
    folder = Path(str(resources.files("podsrl") / "models" / name)) if name != config.path else Path(name).expanduser()
    folder = packaged_folder(name) if name.startswith(PREFIX) else folder
    if folder.is_dir():
        check_files(folder, config.path)
    try:
        tree = json.loads((folder / "config.json").read_text())
        shapes = shapes_in(weight_files(folder)) if tree.get("model_type") in DENSE else {}
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError):  # as damaged files make them
        return _built(config)
    if not shapes:
        return _built(config)
    if tree.get("tie_word_embeddings"):  # some files hold it although it is the embedding
        shapes.pop("lm_head.weight", None)
    linears = {
        name.removesuffix(".weight"): (shape[0], shape[1])
        for name, shape in shapes.items()
        if len(shape) == 2 and not name.startswith(("lm_head", "model.embed_tokens"))
    }
    return _shape(tree.get, shapes, linears)


def _built(config: ModelConfig) -> ModelShape:
    """The model itself, on the meta device: shapes without memory."""
    import torch
    from transformers.pytorch_utils import Conv1D

    from podsrl.policy.source import check_folder, model_folder
    from podsrl.policy.weights import outline
    from podsrl.run.before.offline import skip_unreachable_hub

    skip_unreachable_hub(config)
    path = model_folder(config.path)
    if not Path(path).exists():
        check_folder(path, config.path)  # a folder that is not there is no hub name
    model: Any = outline(config)
    head = model.get_output_embeddings()
    linears = {
        name: (module.weight.shape[0], module.weight.shape[1])
        if isinstance(module, torch.nn.Linear)
        else (module.weight.shape[1], module.weight.shape[0])
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and module is not head
    }
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    name = next((name for name, module in model.named_modules() if module is head), "")
    return _shape(partial(_option, model.config.get_text_config()), shapes, linears, name)


def _option(config: Any, name: str) -> Any:
    """An option under the name that most families use; None: there is none. The largest, where layers differ in it."""
    try:
        return getattr(config, name, None)
    except Exception:  # transformers' own type, for options that are a layer's and not the model's
        return max(getattr(layer, name) for layer in config.per_layer_config)


def _shape(
    option: Callable[[str], Any],
    parameters: Mapping[str, tuple[int, ...]],
    linears: Mapping[str, tuple[int, int]],
    head: str = "lm_head",
) -> ModelShape:
    """Of a config's options, None where it has none of that name; a family's own names are found as the usual ones."""
    family = str(option("model_type"))
    sizes = {name: option(name) for name in ("num_attention_heads", "hidden_size", "num_hidden_layers", "vocab_size")}
    for name, size in sizes.items():
        if not isinstance(size, int):
            raise UsageError(
                f"model.path names a model of type {family!r}, whose config has no {name}: use another model"
            )
    heads, hidden, num_layers, vocabulary = sizes.values()
    return ModelShape(
        family=family,
        hidden_size=hidden,
        intermediate_size=next((size for name in _WIDTHS if (size := option(name))), 4 * hidden),
        num_layers=num_layers,
        num_heads=heads,
        num_kv_heads=_num_kv_heads(option, heads),
        head_dim=option("head_dim") or hidden // heads,
        vocabulary=vocabulary,
        window=window if (window := option("max_position_embeddings")) and window > 0 else None,
        parameters=parameters,
        linears=linears,
        head=head,
    )


def _num_kv_heads(option: Callable[[str], Any], heads: int) -> int:
    if option("multi_query") and not option("new_decoder_architecture"):  # Falcon, GPT-BigCode
        return 1
    return option("num_key_value_heads") or option("num_kv_heads") or heads
