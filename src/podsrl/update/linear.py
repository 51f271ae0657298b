"""Float32 linear layers on a CPU by oneDNN instead of MKL, forward and backward, for the time of an update.

torch computes float32 products on x86 with MKL. oneDNN, which torch carries too, is as fast on Intel and reaches twice
MKL's rate on AMD (Zen 5, one core: 220 against 100 GFLOP/s). It compiles a kernel for each shape, in about half a
millisecond, so it wants row counts that come again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ONEDNN_WORK = 1_000_000
"""Multiplications of a product from which on oneDNN is faster."""
_onednn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""x [R, in], weight [out, in], bias [out] or None, then a function of the result: none here."""


def has_fast_linear(model: nn.Module) -> bool:
    """Whether some of a model's products can go through oneDNN."""
    return _onednn is not None and any(_is_fast(module) for module in model.modules())


@contextmanager
def fast_linears(model: nn.Module) -> Iterator[None]:
    """Let the float32 linear layers of `model` that lie on a CPU compute with oneDNN meanwhile."""
    changed: list[Any] = [module for module in model.modules() if _onednn is not None and _is_fast(module)]
    for module in changed:
        module.forward = partial(linear, module)
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def _is_fast(module: nn.Module) -> bool:
    """A plain linear layer, whose forward nobody else has replaced."""
    if type(module) is not nn.Linear or "forward" in vars(module):
        return False
    return module.weight.is_cpu and module.weight.dtype == torch.float32


def linear(module: nn.Linear, x: Tensor) -> Tensor:
    """What `module(x)` gives, and its gradients, by the faster of both libraries."""
    if x.dtype != torch.float32 or x.numel() * len(module.weight) < ONEDNN_WORK:
        return F.linear(x, module.weight, module.bias)
    result: Tensor = _Linear.apply(x, module.weight, module.bias)  # type: ignore[no-untyped-call]  # torch's
    return result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        above, below = gradient.flatten(0, -2), x.flatten(0, -2)
        return (
            _product(above, weight.t()).view_as(x) if for_x else None,
            _outer(above, below) if for_weight else None,
            above.sum(0) if for_bias else None,
        )


def _outer(above: Tensor, below: Tensor) -> Tensor:
    """above.T @ below [out, in]; oneDNN is faster with the larger one as its weights."""
    if above.shape[1] > below.shape[1]:
        return _product(below.t(), above.t()).t()
    return _product(above.t(), below.t())


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [R, in] @ weight.T [in, out] + bias."""
    result: Tensor = _onednn(x, weight, bias, "none", [], "")
    return result
