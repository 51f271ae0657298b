"""Read the weights of a checkpoint into a live model, one tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from podsrl.errors import CheckpointError
from podsrl.lib.model_files import shapes_in

Write = Callable[[Tensor, Tensor], None]
"""(tensor of the live model, value from the file) -> None."""


@torch.no_grad()
def read_weights(files: Sequence[Path], own: Mapping[str, Tensor], write: Write) -> None:
    """`write` every tensor of *.safetensors files, which together hold every name once, into the live one of its name.

    CheckpointError: a name is missing or unknown, or a shape differs. Nothing has changed then.
    """
    check_shapes(files[0].parent if files else Path("the checkpoint"), shapes_in(files), own)
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (no mapping)
                write(own[name], tensors.get_tensor(name))


def check_shapes(where: Path, found: Mapping[str, tuple[int, ...]], own: Mapping[str, Tensor]) -> None:
    """CheckpointError: `found` (name -> shape) differs from the live model."""
    for name in sorted(set(found) ^ set(own)):
        raise CheckpointError(f"{where}: weight {name!r} is {'not in the model' if name in found else 'missing'}")
    for name, shape in found.items():
        if shape != tuple(own[name].shape):
            raise CheckpointError(f"{where}: weight {name!r} has shape {shape}, the model's {tuple(own[name].shape)}")


def copy_into(own: Tensor, value: Tensor) -> None:
    """Copy a value into a tensor that is not sharded."""
    own.copy_(value)
