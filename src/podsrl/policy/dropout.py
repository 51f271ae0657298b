"""The model's own dropout: off in the update unless the config keeps it, because rollouts are sampled without it.

With dropout the update would compare probabilities of two different networks, and importance ratios would be far from 1
before the first step. Some models add other noise in training (in a router, say); it is turned off too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from podsrl.lib.torch_model import evaluating

_WORDS, _OTHERS = ("drop", "jitter"), ("classifier", "summary")
"""A number between 0 and 1 is a dropout probability or the size of a noise if its name contains one of the first words,
unless it contains one of the others: those belong to heads that a causal language model does not have."""
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
"""Largest difference between the logits of both modes, relative to the largest logit; for 16 bits it is 0.01."""


class Setting(NamedTuple):
    """One option of a model's config with its original value."""

    config: Any
    name: str
    value: float


def turn_off_dropout(model: nn.Module) -> list[Setting]:
    """Set every dropout to 0, in the modules (before adapters, which have their own) and the config: its options."""
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        for name in _noises(module):
            setattr(module, name, 0.0)
    settings = configured_dropout(model)
    for setting in settings:
        setattr(setting.config, setting.name, 0.0)
    return settings


def configured_dropout(model: nn.Module) -> list[Setting]:
    """Options of a model's config that make it draw random numbers in training."""
    configs = _configs(getattr(model, "config", None))
    return [Setting(config, name, getattr(config, name)) for config in configs for name in _noises(config)]


@contextmanager
def as_configured(settings: Sequence[Setting]) -> Iterator[None]:
    """Restore the original values while the context is open (to save the config), then set 0 again."""
    for setting in settings:
        setattr(setting.config, setting.name, setting.value)
    try:
        yield
    finally:
        for setting in settings:
            setattr(setting.config, setting.name, 0.0)


def is_alike_in_training(model: Any) -> bool:
    """Whether training mode and evaluation mode give the same logits, on four tokens."""
    device = next(model.parameters()).device
    ids = torch.arange(4, device=device)[None] % model.get_input_embeddings().num_embeddings
    forks = [device] if device.type == "cuda" else []
    with evaluating(model), torch.random.fork_rng(forks), torch.no_grad():
        plain: Tensor = model(input_ids=ids, use_cache=False).logits
        trained: Tensor = model.train()(input_ids=ids, use_cache=False).logits
    gap = (trained - plain).abs().max() / plain.abs().max().clamp(min=1e-30)
    return not bool(gap > _TOLERANCE.get(plain.dtype, 0.01))


def describe(settings: Sequence[Setting]) -> str:
    """Names and values, each name once."""
    return ", ".join(f"{name} = {value:g}" for name, value in {s.name: s.value for s in settings}.items())


def _noises(owner: Any) -> list[str]:
    numbers = (name for name, value in vars(owner).items() if type(value) in (int, float) and 0 < value <= 1)
    return [name for name in numbers if any(w in name for w in _WORDS) and not any(w in name for w in _OTHERS)]


def _configs(config: Any) -> list[Any]:
    """A config and the configs in it."""
    if not hasattr(config, "to_dict"):
        return []
    return [config, *(each for inner in vars(config).values() for each in _configs(inner))]
