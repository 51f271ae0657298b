"""What every stage that touches a device must know of it."""

from __future__ import annotations

import torch

_ERRORS = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError), MemoryError)
_SIGNS = ("CUDA error", "cuDNN error", "DefaultCPUAllocator")
"""In the messages of plain RuntimeErrors; all but the last come as AcceleratorError from torch 2.8 on."""


def avoid_cudnn_attention(device: torch.device) -> None:
    """On a GPU, take cuDNN out of torch's attention, for the whole process.

    From 2.11 on torch tries it first for 16 bits. It makes an execution plan for every new shape, and nearly every step
    of generation and update has new ones; with a mask its gradients have been NaN (pytorch/pytorch#196678).
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


def is_device_error(error: BaseException) -> bool:
    """Whether memory ran out or the device failed: nothing is learned from that about a model.

    Example:
        >>> is_device_error(RuntimeError("CUDA error: an illegal memory access")), is_device_error(ValueError("no"))
        (True, False)
    """
    return isinstance(error, _ERRORS) or any(sign in str(error) for sign in _SIGNS)
