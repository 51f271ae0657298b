"""A linear map without its module, by the library that is faster at its size (`podsrl.lib.matmul`)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from podsrl.lib.matmul import onednn, uses_onednn


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
