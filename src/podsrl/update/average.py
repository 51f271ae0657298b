"""An average of the weights of the last versions: the proximal policy of PPO-EWMA (arXiv 2110.00641, 2605.12070).

Of the weights θ(0), θ(1) … since the last reset, after t optimizer steps

    average(t) = Σ β^(t-k) θ(k) / Σ β^(t-k),    β = W / (W + 2)

so that the mean age of what is averaged comes near W / 2, the middle of a window of W versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from podsrl.errors import CheckpointError

KIND = "average"
"""In a checkpoint, before the name of a parameter."""
COUNT = "num_averaged"


class Average:
    """The average of a model's trainable weights, in float32 or wider.

    Args:
        model: its weights as they are now are the first version.
        window: W, at least 0; 0: the average is the newest version.
    """

    def __init__(self, model: nn.Module, window: float) -> None:
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._decay = window / (window + 2)
        self.count = 1
        """Versions since the last reset."""
        self._averages = {name: _copy(weight) for name, weight in self._weights.items()}

    @torch.no_grad()
    def add(self) -> None:
        """Take in the weights as they are: a new version."""
        self.count += 1
        total = (1 - self._decay**self.count) / (1 - self._decay)
        for name, weight in self._weights.items():
            if self._decay:
                self._averages[name] += (weight.to(self._averages[name].dtype) - self._averages[name]) / total
            else:
                self._averages[name].copy_(weight)

    @torch.no_grad()
    def reset(self) -> None:
        """Begin again with the weights as they are."""
        self.count = 1
        for name, weight in self._weights.items():
            self._averages[name].copy_(weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the average for its weights; these are where they were afterwards, unread and unchanged."""
        kept = {name: weight.data for name, weight in self._weights.items()}
        try:
            for name, weight in self._weights.items():
                weight.data = self._averages[name].to(weight.dtype)
            yield
        finally:
            for name, weight in self._weights.items():
                weight.data = kept[name]

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """Tensors by "average/parameter name", and a count."""
        return {f"{KIND}/{name}": value for name, value in self._averages.items()}, {COUNT: self.count}

    @torch.no_grad()
    def load_state_dict(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, int]) -> None:
        """Take over what `state_dict` gave.

        Raises:
            CheckpointError: it is of another model.
        """
        found = {name.removeprefix(f"{KIND}/"): value for name, value in tensors.items()}
        if COUNT not in numbers or {name: value.shape for name, value in found.items()} != {
            name: value.shape for name, value in self._averages.items()
        }:
            raise CheckpointError("the checkpoint lacks the average of the weights; use another one")
        self.count = numbers[COUNT]
        for name, value in found.items():
            self._averages[name].copy_(value)


def _copy(weight: Tensor) -> Tensor:
    return weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)
