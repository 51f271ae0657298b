"""What every stage that uses a device needs to know about it."""

from __future__ import annotations

from functools import cache

import torch

from podsrl.errors import is_out_of_memory, one_line

FREE_SHARE = 0.8
"""Of a GPU's free memory, what keys and values may take. The rest is for logits, activations of prompts and what the
allocator cannot use."""
_ERRORS = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError))
_SIGNS = ("CUDA error", "cuDNN error")
"""Texts in messages of plain RuntimeErrors; from torch 2.8 on, they are AcceleratorErrors."""


def avoid_cudnn_attention(device: torch.device) -> None:
    """On a GPU, exclude cuDNN from torch's attention, for the whole process.

    From 2.11 on torch tries cuDNN first for 16 bits. cuDNN makes an execution plan per shape, and nearly every step of
    generation and update has new shapes; with a mask its gradients have been NaN (pytorch/pytorch#196678).
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


def is_device_error(error: BaseException) -> bool:
    """Whether memory ran out or the device failed, which says nothing about the model.

    Example:
        >>> is_device_error(RuntimeError("CUDA error: an illegal memory access")), is_device_error(ValueError("no"))
        (True, False)
    """
    return isinstance(error, _ERRORS) or is_out_of_memory(error) or any(sign in str(error) for sign in _SIGNS)


def default_bound(device: torch.device, later_bytes: int) -> int:
    """Bytes for keys and values on a CUDA device where the config gives no bound; 0 or less where nothing is left.

    `later_bytes` of what is free now are left to others.
    """
    free, _ = torch.cuda.mem_get_info(device)
    return int(FREE_SHARE * (free - later_bytes))


@cache
def why_no_kernels(device: str) -> str | None:
    """The reason why kernels in Triton do not run on a type of device; None: they do."""
    if device != "cuda" or torch.cuda.get_device_capability() < (8, 0):
        return "its device is no CUDA GPU of generation 8 (Ampere) or later"
    try:
        from triton.runtime import driver

        driver.active.get_current_target()
    except ImportError:
        return "the package triton is missing, which torch brings for CUDA on Linux"
    except Exception as error:  # no compiler, no driver: of any type
        return f"triton fails with {one_line(str(error), 120)}"
    return None
