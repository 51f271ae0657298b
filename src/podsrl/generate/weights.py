"""New weights into a model that may share memory with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from podsrl.errors import UsageError


def take_weights(model: Any, named_tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Copy weights into the model's own tensors, but for those that are the same memory already.

    Raises:
        UsageError: a name that the model does not have, or another shape.
    """
    own, new = dict(model.named_parameters()), list(named_tensors)
    for name, tensor in new:
        if name not in own or own[name].shape != tensor.shape:
            shape = tuple(own[name].shape) if name in own else "no such parameter"
            raise UsageError(f"weight {name!r} of shape {tuple(tensor.shape)}: the engine's model has {shape}")
    with torch.no_grad():
        for name, tensor in new:
            if own[name].data_ptr() != tensor.data_ptr():
                own[name].copy_(tensor)
