"""Which library computes a run's float32 products: process 0 chooses for all."""

from __future__ import annotations

import torch
from torch import nn

from podsrl.lib.matmul import SMALL, Library, choose, is_available, use
from podsrl.scale.processes import Processes


def settle_matmul(option: str, model: nn.Module, processes: Processes) -> Library | None:
    """Choose as `option` (`model.matmul`) says, and use that from now on; all processes call this.

    None where the model has no float32 weights on a CPU, so that there is nothing to choose.
    """
    if not any(weight.is_cpu and weight.dtype == torch.float32 for weight in model.parameters()):
        return None
    library: Library = processes.broadcast(choose(option) if processes.is_main else "mkl")
    use(library)
    return library


def describe_matmul(option: str, library: Library | None) -> str:
    """In one line, which library computes a run's float32 products on the CPU, and what decided that."""
    if library is None:
        ignored = "" if option == "auto" else f"; model.matmul = {option!r} has no effect"
        return f"by PyTorch, since no weight is float32 on a CPU{ignored}"
    if not is_available():
        return "by PyTorch, since there is no choice of libraries on this processor (it is not an x86)"
    by = "by MKL" if library == "mkl" else f"by oneDNN from {SMALL:,} multiplications on, smaller ones by MKL"
    return f"{by} ({'the faster one on this processor' if option == 'auto' else f'model.matmul = {option!r}'})"
