"""Small arrays between the host and the device that the model is on, several in one transfer.

On a CPU nothing is copied. What is sent to a CUDA device lies in pinned memory, so the host does not wait for it; it
waits once per step, for what comes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Words = npt.NDArray[Any]
"""An array of 8-byte numbers."""


def to_device(device: torch.device, *arrays: Words) -> tuple[Tensor, ...]:
    """Tensors on the device with the contents of int64 or float64 arrays [n]; on a CPU they share the memory.

    Example:
        >>> to_device(torch.device("cpu"), np.array([1, 2]), np.array([0.5]))
        (tensor([1, 2]), tensor([0.5000], dtype=torch.float64))
    """
    if device.type == "cpu":
        return tuple(map(torch.from_numpy, arrays))
    packed = torch.from_numpy(np.concatenate([array.view(np.int64) for array in arrays]))
    if device.type == "cuda":
        packed = packed.pin_memory()
    parts = torch.split(packed.to(device, non_blocking=True), [len(array) for array in arrays])
    pairs = zip(parts, arrays, strict=True)
    return tuple(part.view(torch.float64) if array.dtype == np.float64 else part for part, array in pairs)


def to_host(tokens: Tensor, logprobs: Tensor) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Tokens [B] int64 and log-probabilities [B] float32 in host memory, in one transfer. Both are exact in float64."""
    if tokens.is_cpu:
        return tokens.numpy(), logprobs.numpy()
    packed = torch.stack([tokens.double(), logprobs.double()]).cpu().numpy()
    return packed[0].astype(np.int64), packed[1].astype(np.float32)
