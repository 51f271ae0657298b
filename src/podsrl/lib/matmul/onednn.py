"""A linear layer computed by oneDNN, forward and backward.

oneDNN compiles a kernel per shape, in about half a millisecond, so row counts should repeat.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_call: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""Takes x [R, in], weight [out, in], bias [out] or None, and a function of the result: none here."""


def is_available() -> bool:
    """Whether oneDNN can be used: on an x86 processor, with a torch that was built with oneDNN."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return is_x86 and _call is not None and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]  # torch's


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [R, in] @ weight.T [in, out] + bias; float32 on a CPU, without gradient."""
    result: Tensor = _call(x, weight, bias, "none", [], "")
    return result


class OnednnLinear(torch.autograd.Function):
    """`OnednnLinear.apply(x [..., in], weight [out, in], bias [out] or None)`, with gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        above, below = gradient.flatten(0, -2), x.flatten(0, -2)
        return (
            onednn(above, weight.t()).view_as(x) if for_x else None,
            outer(above, below) if for_weight else None,
            above.sum(0) if for_bias else None,
        )


def outer(above: Tensor, below: Tensor) -> Tensor:
    """above.T @ below [out, in]; oneDNN is faster with the larger one as its weights."""
    if above.shape[1] > below.shape[1]:
        return onednn(below.t(), above.t()).t()
    return onednn(above.t(), below.t())
