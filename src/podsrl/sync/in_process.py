"""Sync within one process: the generator takes the trainer's tensors; where it has them already, nothing is copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor


class TakesWeights(Protocol):
    """The part of a generator that sync needs."""

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None: ...


def sync_weights(model: Any, generator: TakesWeights, version: int) -> None:
    """Let the generator sample from the model's weights as they are now.

    Args:
        model: the trained torch module.
        generator: whatever samples.
        version: optimizer steps that these weights have seen.
    """
    generator.load_weights(((name, parameter.detach()) for name, parameter in model.named_parameters()), version)
