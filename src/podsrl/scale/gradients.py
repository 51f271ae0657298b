"""Sum the gradients of all processes once per optimizer step, in flat buckets.

A sum, not a mean: every process has divided its loss by the rows and tokens of the whole step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from podsrl.scale.processes import Processes

BUCKET_BYTES = 64 << 20
"""Size of a bucket: few messages, and little memory beside the gradients themselves."""


def sum_gradients(model: nn.Module, processes: Processes) -> None:
    """Replace every gradient by its sum over all processes.

    A parameter that has a gradient nowhere keeps none, so that the optimizer leaves it alone; one that has it on some
    processes counts as 0 on the others. The gradients must not be sharded.
    """
    if processes.is_alone:
        return
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    has_gradient = torch.tensor([float(parameter.grad is not None) for parameter in parameters])
    used = processes.sum(has_gradient.to(parameters[0].device)) > 0
    summed = [parameter for parameter, is_used in zip(parameters, used.tolist(), strict=True) if is_used]
    for parameter in summed:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for bucket in _buckets([parameter.grad for parameter in summed if parameter.grad is not None], BUCKET_BYTES):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        pieces = torch.split(processes.sum(flat), [gradient.numel() for gradient in bucket])
        torch._foreach_copy_(bucket, [piece.view_as(own) for piece, own in zip(pieces, bucket, strict=True)])


def _buckets(gradients: Sequence[Tensor], max_bytes: int) -> Iterator[list[Tensor]]:
    """Neighbouring gradients of one dtype, up to `max_bytes` per bucket; a larger gradient has its own bucket."""
    bucket: list[Tensor] = []
    size = 0
    for gradient in gradients:
        if bucket and (size + gradient.nbytes > max_bytes or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.nbytes
    if bucket:
        yield bucket
