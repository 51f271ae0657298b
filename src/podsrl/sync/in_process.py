"""Sync within one process: the generator loads the trainer's tensors. If it shares them, nothing is copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from podsrl.errors import PodsError
from podsrl.sync.digest import Samples

NamedTensors = Iterable[tuple[str, Tensor]]


class TakesWeights(Protocol):
    """The part of a generator that sync needs.

    If it has the module that it samples from as `model`, the module's weights are checked after a sync.
    """

    def load_weights(self, named_tensors: NamedTensors, version: int) -> None: ...


class SyncError(PodsError):
    """The generator does not hold the weights that it was given."""


def sync_weights(weights: nn.Module | NamedTensors, generator: TakesWeights, version: int) -> str:
    """Let the generator sample from the current weights, and check that it holds them.

    Args:
        weights: the trained module, or named tensors, such as matrices merged one at a time: none is kept.
        generator: whatever samples.
        version: optimizer steps that these weights have seen.

    Returns:
        `weights_digest` of the weights that the generator now samples from (in its number format).

    Raises:
        SyncError: a sample of the generator's weights is not, bit for bit, that of what it was given.

    Example:
        >>> digest = sync_weights(policy.sampled_weights(), engine, version=3)  # doctest: +SKIP
    """
    named = weights.named_parameters() if isinstance(weights, nn.Module) else weights
    held = _held(generator)
    given = Samples()
    generator.load_weights(_watched(named, given, held), version)
    digest = given.digest()
    if held and digest != (found := Samples(_held(generator).items())).digest():
        names = given.differing(found)
        raise SyncError(
            f"after a sync the generator holds other weights than it was given: {names[0]} and {len(names) - 1} more; "
            "its load_weights must copy every tensor before it asks for the next"
        )
    return digest


def _held(generator: Any) -> dict[str, Tensor]:
    model = getattr(generator, "model", None)
    return dict(model.named_parameters()) if isinstance(model, nn.Module) else {}


def _watched(named: NamedTensors, given: Samples, held: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors, and keep a sample of each in the dtype that the generator holds."""
    for name, tensor in named:
        given.add(name, tensor, held[name].dtype if name in held else None)
        yield name, tensor.detach()
