"""Linear layers by the library that is faster at their size (`lib/matmul`), in decoding and in updates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podsrl.lib.matmul import OnednnLinear, current, is_available, onednn, uses_onednn


def has_fast_linear(model: nn.Module) -> bool:
    """Whether some of a model's products may go through oneDNN."""
    return is_available() and any(_is_fast(module) for module in model.modules())


@contextmanager
def fast_linears(model: nn.Module) -> Iterator[None]:
    """Within it the float32 linear layers of `model` that are on a CPU compute with the faster library."""
    changed: list[Any] = [module for module in model.modules() if _is_fast(module)] if is_available() else []
    for module in changed:
        module.forward = partial(linear, module)
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def _is_fast(module: nn.Module) -> bool:
    """A plain linear layer whose forward has not been replaced."""
    if type(module) is not nn.Linear or "forward" in vars(module):
        return False
    return module.weight.is_cpu and module.weight.dtype == torch.float32


def linear(module: nn.Linear, x: Tensor) -> Tensor:
    """`module(x)`, with its gradients, by the faster of both libraries."""
    if x.dtype != torch.float32 or x.numel() * len(module.weight) < current().update:
        return F.linear(x, module.weight, module.bias)
    result: Tensor = OnednnLinear.apply(x, module.weight, module.bias)  # type: ignore[no-untyped-call]  # torch's
    return result


class Linear:
    """x [R, in] -> [R, out] with the weights of a module, in place."""

    __slots__ = ("_bias", "_has_choice", "_size", "_weight")

    def __init__(self, module: Any) -> None:
        self._weight, self._bias = module.weight, module.bias
        self._has_choice = self._weight.is_cpu and self._weight.dtype == torch.float32
        self._size: int = self._weight.numel()

    def __call__(self, x: Tensor) -> Tensor:
        if self._has_choice and uses_onednn(len(x), len(x) * self._size):
            return onednn(x, self._weight, self._bias)
        return F.linear(x, self._weight, self._bias)
