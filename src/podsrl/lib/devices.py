"""What every stage that uses a device needs to know about it."""

from __future__ import annotations

import torch

_ERRORS = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError), MemoryError)
_SIGNS = ("CUDA error", "cuDNN error", "DefaultCPUAllocator")
"""Texts in messages of plain RuntimeErrors; from torch 2.8 on, all but the last are AcceleratorErrors."""


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
    return isinstance(error, _ERRORS) or any(sign in str(error) for sign in _SIGNS)
