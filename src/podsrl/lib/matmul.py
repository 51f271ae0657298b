"""Float32 matrix products on an x86 processor by MKL or by oneDNN, both of which torch carries.

torch's own linear layers use MKL, which keeps to AVX2 on processors of AMD. Where these have AVX-512, oneDNN is up to
twice as fast (AMD Zen 5); on AMD's Zen 3 and Intel's Sapphire Rapids MKL is (figures in docs/engine.md). So "auto" is a
rule by the processor, and two runs of one config on one machine choose alike: the libraries round differently. The
choice holds for the whole process, like torch's number of threads.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from podsrl.errors import UsageError
from podsrl.lib.machine import processor_facts

Library = Literal["mkl", "onednn"]
SMALL = 1_000_000
"""Products of fewer multiplications (rows · in · out) stay with MKL: a call of oneDNN costs some microseconds more."""
_library: Library | None = None
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


def check_option(option: str) -> None:
    """UsageError: `model.matmul` names a library that this machine does not have."""
    if option == "onednn" and not is_available():
        raise UsageError(
            "model.matmul = 'onednn': oneDNN's products need an x86 processor and a torch built with oneDNN, which is "
            "not the case here; leave the option out"
        )


def choose(option: str = "auto") -> Library:
    """The library of `model.matmul`; "auto": the one that is faster on this processor."""
    check_option(option)
    if option != "auto":
        return "mkl" if option == "mkl" else "onednn"
    has_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    is_amd = processor_facts().get("vendor_id") == "AuthenticAMD"
    return "onednn" if is_available() and is_amd and has_avx512 else "mkl"


def use(library: Library | None) -> None:
    """Use this library from now on, in the whole process; None: choose again at the next product."""
    global _library
    _library = library if library is None or is_available() else "mkl"


def in_use() -> Library:
    """The library in use; if none was chosen yet, that of "auto"."""
    if _library is None:
        use(choose())
    assert _library is not None
    return _library


def uses_onednn(work: int) -> bool:
    """Whether oneDNN computes a float32 product of so many multiplications, rows · in · out."""
    return work >= SMALL and (_library or in_use()) == "onednn"


def has_fast_linear(model: nn.Module) -> bool:
    """Whether some of a model's products may go through oneDNN."""
    return is_available() and any(_is_fast(module) for module in model.modules())


@contextmanager
def fast_linears(model: nn.Module) -> Iterator[None]:
    """Within it the float32 linear layers of `model` that are on a CPU compute with the library in use."""
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
    """`module(x)`, with its gradients, by the library in use."""
    if x.dtype != torch.float32 or not uses_onednn(x.numel() * len(module.weight)):
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
        if self._has_choice and uses_onednn(len(x) * self._size):
            return onednn(x, self._weight, self._bias)
        return F.linear(x, self._weight, self._bias)
