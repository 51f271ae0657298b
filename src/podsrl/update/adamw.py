"""The two implementations of AdamW, and which tensors each keeps per weight.

adamw       torch's, moments in the weight's own precision (Loshchilov & Hutter 2019)
adamw_8bit  bitsandbytes', moments in 8 bits by blocks of 256 (Dettmers et al. 2022, 8-bit optimizers); weights of under
            4,096 elements keep moments of 32 bits
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from podsrl.errors import UsageError

_BLOCK = 256
_MIN_8_BIT = 4096
Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]
"""Kind -> shape and type: all that is kept for one weight."""


@dataclass(frozen=True, slots=True)
class Adam:
    """One implementation."""

    new: Callable[..., torch.optim.Optimizer]
    """(parameter groups, lr, betas, eps) -> optimizer."""
    layout: Callable[[Tensor], Layout]
    """Weight -> the tensors that are kept for it once it has been stepped."""
    remember: Callable[[torch.optim.Optimizer, Tensor, Mapping[str, Tensor]], None]
    """Put tensors of that layout back."""


def _new_adamw(groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> torch.optim.AdamW:
    # fused: for a small model three times as fast as foreach, on a CPU too; elementwise, so repeatable bit for bit
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=True)


def _adamw_layout(weight: Tensor) -> Layout:
    moment = (tuple(weight.shape), weight.dtype)
    return {"step": ((), torch.float32), "exp_avg": moment, "exp_avg_sq": moment}


def _remember_adamw(optimizer: torch.optim.Optimizer, weight: Tensor, kinds: Mapping[str, Tensor]) -> None:
    optimizer.state[weight] = dict(kinds)


def _new_adamw_8bit(groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> Any:
    if any(hasattr(weight, "placements") for group in groups for weight in group["params"]):
        raise UsageError(
            "optim.name = 'adamw_8bit' does not step sharded weights: use 'adamw', or scale.strategy 'ddp'"
        )
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError:
        raise UsageError(
            "optim.name = 'adamw_8bit' needs bitsandbytes, which is not installed: pip install 'podsrl[quantized]'"
        ) from None
    return AdamW8bit(groups, lr=lr, betas=betas, eps=eps, min_8bit_size=_MIN_8_BIT)


def _adamw_8bit_layout(weight: Tensor) -> Layout:
    shape = tuple(weight.shape)
    if weight.numel() < _MIN_8_BIT:
        return {"step": ((), torch.float32), "state1": (shape, torch.float32), "state2": (shape, torch.float32)}
    scales = ((-(-weight.numel() // _BLOCK),), torch.float32)
    moments: Layout = {"state1": (shape, torch.uint8), "state2": (shape, torch.uint8)}
    return {"step": ((), torch.float32), **moments, "absmax1": scales, "absmax2": scales}


def _remember_adamw_8bit(optimizer: Any, weight: Tensor, kinds: Mapping[str, Tensor]) -> None:
    state: dict[str, Any] = {**kinds, "step": int(kinds["step"])}
    if "absmax1" in kinds:  # the tables of values that 8 bits stand for are the same for all weights
        tables = optimizer.name2qmap
        state |= {"qmap1": tables["dynamic"].to(weight.device), "qmap2": tables["udynamic"].to(weight.device)}
    optimizer.state[weight] = state


ADAMS: dict[str, Adam] = {
    "adamw": Adam(_new_adamw, _adamw_layout, _remember_adamw),
    "adamw_8bit": Adam(_new_adamw_8bit, _adamw_8bit_layout, _remember_adamw_8bit),
}
