"""New weights into a model that may share memory with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from podsrl.errors import UsageError


def take_weights(model: Any, named_tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Copy weights into the model's own tensors, except those that share their memory.

    A collection is checked as a whole before anything is copied; of an iterator, each is checked and copied before the
    next is asked for, so that weights which are made one at a time never exist all at once. UsageError: a name that the
    model does not have, or another shape.
    """
    own = dict(model.named_parameters())
    if not isinstance(named_tensors, Iterator):
        for name, tensor in named_tensors:
            _check(own, name, tensor)
    with torch.no_grad():
        for name, tensor in named_tensors:
            _check(own, name, tensor)
            if own[name].data_ptr() != tensor.data_ptr():
                own[name].copy_(tensor)


def _check(own: Mapping[str, Tensor], name: str, tensor: Tensor) -> None:
    if name not in own or own[name].shape != tensor.shape:
        shape = tuple(own[name].shape) if name in own else "no such parameter"
        raise UsageError(f"weight {name!r} of shape {tuple(tensor.shape)}: the engine's model has {shape}")
