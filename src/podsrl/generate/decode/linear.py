"""A linear map without its module, by the faster of two libraries.

torch computes float32 products on x86 with MKL. oneDNN, which torch carries too, is as fast on Intel and reaches twice
MKL's rate on AMD (Zen 5, one core: 230 against 105 GFLOP/s), but a call costs 6 µs more: it is for larger products.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_ONEDNN_WORK = 1_000_000
"""Multiplications of a product from which on oneDNN is faster."""
_onednn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""x [R, in], weight [out, in], bias [out] or None, then a function of the result: none here."""


class Linear:
    """x [R, in] -> [R, out] with the weights of a module, in place."""

    __slots__ = ("_bias", "_min_rows", "_weight")

    def __init__(self, module: Any) -> None:
        self._weight, self._bias = module.weight, module.bias
        may_onednn = _onednn is not None and self._weight.is_cpu and self._weight.dtype == torch.float32
        self._min_rows = _ONEDNN_WORK / self._weight.numel() if may_onednn else float("inf")

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) < self._min_rows:
            return F.linear(x, self._weight, self._bias)
        result: Tensor = _onednn(x, self._weight, self._bias, "none", [], "")
        return result
