"""Copy records of tensors to another device; to a GPU by one copy that the host does not wait for.

A copy from ordinary memory makes the host wait, once per tensor. So all tensors of a record are laid one behind the
other in pinned memory, are copied together, and become views of the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

Record = TypeVar("Record")
CPU = torch.device("cpu")

_ALIGNMENT = 16
"""Bytes; each tensor begins at a multiple, so that it can be viewed as its own type."""


def move(record: Record, device: torch.device) -> Record:
    """The same record with its tensors on `device`.

    Args:
        record: a tensor, a dataclass, or a tuple of such; what is none of them is kept.
        device: from the CPU to CUDA, work that is queued later finds the tensors there, and the host continues at
            once; any other copy is finished on return.

    Example:
        >>> move((torch.ones(2), 3), torch.device("cpu"))
        (tensor([1., 1.]), 3)
    """
    tensors = list(_tensors(record))
    if all(tensor.device == device for tensor in tensors):
        return record
    if device.type == "cuda" and all(tensor.is_cpu for tensor in tensors):
        moved = iter(_together(tensors, device))
    else:
        moved = iter([tensor.to(device) for tensor in tensors])
    result: Record = _mapped(record, lambda _: next(moved))
    return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    for part in _parts(value):
        yield from _tensors(part)


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    parts = [_mapped(part, change) for part in _parts(value)]
    if isinstance(value, tuple):
        return tuple(parts)
    return replace(value, **dict(zip((field.name for field in fields(value)), parts, strict=True))) if parts else value


def _parts(value: Any) -> Sequence[Any]:
    """What a tuple or a dataclass is made of, in its order; nothing for all else."""
    if isinstance(value, tuple):
        return value
    return [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else ()


def _together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copies on a GPU. Pinned memory is not used again before the copy has ended: torch's allocator sees to it."""
    if not tensors:
        return []
    packed, lengths = _packed(tensors)
    arrived = packed.pin_memory().to(device, non_blocking=True)
    return _unpacked(torch.split(arrived, lengths), tensors)


def _packed(tensors: Sequence[Tensor]) -> tuple[Tensor, list[int]]:
    """The bytes of all tensors, and how many each takes with its filling."""
    flat = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    filled = [torch.nn.functional.pad(each, (0, -len(each) % _ALIGNMENT)) for each in flat]
    return torch.cat(filled), [len(each) for each in filled]


def _unpacked(pieces: Sequence[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Views of the pieces in the types and shapes of the tensors they were made of."""
    pairs = zip(pieces, tensors, strict=True)
    return [piece[: tensor.nbytes].view(tensor.dtype).view(tensor.shape) for piece, tensor in pairs]
