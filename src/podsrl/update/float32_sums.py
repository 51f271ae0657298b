"""Sum the gradients of 16-bit weights over micro-batches in float32.

A parameter's gradient has the parameter's type. A sum in bfloat16 keeps 8 bits: what a micro-batch adds is rounded to
1/256 of the sum so far, and shares under half of that are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def has_16_bits(weight: Tensor) -> bool:
    """Whether a weight, and with it its gradient, is too coarse to be added to many times."""
    return weight.dtype.itemsize < 4


@contextmanager
def float32_sums(model: nn.Module) -> Iterator[None]:
    """Within it, gradients of 16-bit weights are added to float32 sums; at its end they are rounded back, once.

    The sums take 4 bytes per weight instead of 2. Gradients from before are included.

    Example:
        >>> layer = nn.Linear(1, 1, bias=False).bfloat16()
        >>> with float32_sums(layer):
        ...     for share in [1.0] + 256 * [1 / 256]:  # bfloat16 has nothing between 1 and 1 + 1/128
        ...         layer(torch.full((1, 1), share, dtype=torch.bfloat16)).sum().backward()
        >>> layer.weight.grad.item()
        2.0
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad and has_16_bits(weight)]
    sums: dict[nn.Parameter, Tensor] = {}

    def take(weight: nn.Parameter) -> None:
        gradient, weight.grad = weight.grad, None
        if gradient is not None:
            sums[weight] = sums[weight].add_(gradient) if weight in sums else gradient.to(torch.float32)

    for weight in weights:
        take(weight)
    hooked: list[Any] = list(weights)  # torch has no type for what comes next
    handles = [weight.register_post_accumulate_grad_hook(take) for weight in hooked]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        while sums:
            weight, total = sums.popitem()
            weight.grad = total.to(weight.dtype)
