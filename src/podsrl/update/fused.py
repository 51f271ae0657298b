"""Norms, rotary positions and adapters in fewer kernels, on a GPU, where the host that starts kernels takes the time.

transformers' RMS norm is 8 kernels forward and some 14 backward, `F.rms_norm` 1 and 2 or 3; its rotation of queries and
keys is 10 and 18, here 5 and 5. Of both, what is replaced gave the same numbers at a trial, but for rounding. PEFT
scales and adds an adapter's product in two passes over what the layer gives; here the product adds itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}
"""Largest difference of a trial by the largest number; 16 bits: 0.02. Norms of transformers are float32 in any type."""
_ROTATE = "apply_rotary_pos_emb"
Replacement = tuple[Any, str, Callable[..., Any]]
"""Whose attribute, its name, and what takes its place."""


@contextmanager
def replaced(parts: list[Replacement]) -> Iterator[None]:
    """Within it the parts that `find_parts` found are replaced, in the forward and in a backward that repeats it."""
    before = [vars(owner).get(name) for owner, name, _ in parts]
    for owner, name, function in parts:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for (owner, name, _), own in zip(parts, before, strict=True):
            setattr(owner, name, own) if own is not None else delattr(owner, name)


def find_parts(model: nn.Module) -> list[Replacement]:
    """The norms of a model, and the functions that its attention rotates by, which are the known ones at a trial."""
    norms = [module for module in model.modules() if type(module).__name__.endswith("RMSNorm")]
    known = {kind for kind in set(map(type, norms)) if _is_plain(next(norm for norm in norms if type(norm) is kind))}
    parts: list[Replacement] = [(norm, "forward", partial(_norm, norm)) for norm in norms if type(norm) in known]
    weight = next(model.parameters())
    for source in {type(module).__module__ for module in model.modules() if hasattr(module, "o_proj")}:
        rotate = getattr(sys.modules[source], _ROTATE, None)
        if rotate is not None and _is_known(rotate, weight):
            parts.append((sys.modules[source], _ROTATE, partial(_rotate, rotate)))
    return [*parts, *((layer, "forward", partial(_adapt, layer)) for layer in model.modules() if _is_adapted(layer))]


def _norm(module: Any, states: Tensor) -> Tensor:
    return F.rms_norm(states, module.weight.shape, module.weight, module.variance_epsilon)


@torch.no_grad()
def _is_plain(module: Any) -> bool:
    """Whether a norm is its weight times the normalised states; these are small, so that its epsilon shows."""
    if [name for name, _ in module.named_parameters()] != ["weight"] or not hasattr(module, "variance_epsilon"):
        return False
    states = _made_up(module.weight, 3, *module.weight.shape) * 1e-3
    return _agree(lambda: [module(states)], lambda: [_norm(module, states)])


@torch.no_grad()
def _is_known(rotate: Callable[..., Any], weight: Tensor) -> bool:
    made_up: Any = [_made_up(weight, 1, *size) for size in ((2, 3, 8), (1, 3, 8), (3, 8), (3, 8))]
    return _agree(lambda: rotate(*made_up), lambda: _rotate(rotate, *made_up))


def _is_adapted(layer: Any) -> bool:
    """Whether it is PEFT's linear layer with one plain adapter of the base's type."""
    if f"{type(layer).__module__}.{type(layer).__name__}" != "peft.tuners.lora.layer.Linear":
        return False
    names, others = list(layer.lora_A), (*getattr(layer, "lora_variant", {}), *getattr(layer, "use_dora", {}).values())
    if len(names) != 1 or layer.active_adapters != names or any(others) or type(layer.base_layer) is not nn.Linear:
        return False
    (first,), (second,) = layer.lora_A.values(), layer.lora_B.values()
    is_plain: bool = first.bias is second.bias is None and first.weight.dtype == layer.base_layer.weight.dtype
    return is_plain


def _adapt(layer: Any, states: Tensor, *args: Any, **options: Any) -> Tensor:
    """W x + b + B (s A x); merged or switched off, as PEFT does it."""
    if layer.disable_adapters or layer.merged or args or options:
        own: Tensor = type(layer).forward(layer, states, *args, **options)
        return own
    (name,) = layer.lora_A
    result = layer.base_layer(states)
    low, scale = layer.lora_A[name](layer.lora_dropout[name](states)), layer.scaling[name]
    low = low if scale == 1 else low * scale
    both = torch.addmm(result.flatten(0, -2), low.flatten(0, -2), layer.lora_B[name].weight.t())
    return both.view_as(result)


def _made_up(like: Tensor, *size: int) -> Tensor:
    return (
        torch.linspace(1, 50 + len(size), torch.Size(size).numel(), device=like.device).sin().view(size).to(like.dtype)
    )


def _agree(own: Callable[[], Any], new: Callable[[], Any]) -> bool:
    try:
        pairs = list(zip(own(), new(), strict=True))
    except (TypeError, ValueError, RuntimeError):  # a function with other arguments, or of other shapes
        return False
    bound = _TOLERANCE.get(pairs[0][0].dtype, 0.02)
    return all(bool((one - other).abs().max() <= bound * one.abs().max()) for one, other in pairs)


def _rotate(
    original: Callable[..., Any], query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
) -> tuple[Tensor, Tensor]:
    """Queries [B, H, T, D] and keys [B, K, T, D] turned by angles [B, T, D]; of another width by the model's own."""
    if unsqueeze_dim != 1 or cos.shape[-1] != query.shape[-1]:
        turned: tuple[Tensor, Tensor] = original(query, key, cos, sin, unsqueeze_dim)
        return turned
    turned = _Rotation.apply(query, key, cos[:, None], sin[:, None])  # type: ignore[no-untyped-call]  # torch's
    return turned


class _Rotation(torch.autograd.Function):
    """x cos + (-x2, x1) sin, where x1 and x2 are the halves of x, for all heads: (x2, x1) is x rolled by half."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        half, ctx.heads = cos.shape[-1] // 2, query.shape[1]
        signed = torch.cat([-sin[..., :half], sin[..., half:]], -1)
        ctx.save_for_backward(cos, signed)
        return _turn(query, key, cos, signed, ctx.heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, query: Tensor, key: Tensor) -> tuple[Tensor | None, ...]:
        cos, signed = ctx.saved_tensors
        return *_turn(query, key, cos, signed.roll(signed.shape[-1] // 2, -1), ctx.heads), None, None


def _turn(query: Tensor, key: Tensor, cos: Tensor, signed: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    both = torch.cat([query, key], 1)
    turned = torch.addcmul(both * cos, both.roll(both.shape[-1] // 2, -1), signed)
    return turned[:, :heads], turned[:, heads:]
