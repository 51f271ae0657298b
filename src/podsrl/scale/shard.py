"""Weights, gradients and optimizer state sharded over the processes, with PyTorch's FSDP2.

    fsdp2    weights, gradients and moments are sharded; a block's weights are whole only while it runs
    zero2    gradients and moments are sharded; weights are whole from a micro-batch's forward to its backward's end

"zero2" is what DeepSpeed calls ZeRO stage 2. It is done by the same library as "fsdp2", with
`reshard_after_forward=False`, instead of DeepSpeed: nothing to install or compile, one code path for both, and it runs
on CPUs too, so that both are tested against a single process.

Gradients are summed over the processes, not averaged: each process divides by the rows and tokens of the whole step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from podsrl.errors import UsageError
from podsrl.scale.processes import Processes


def is_sharded(strategy: str, processes: Processes) -> bool:
    """Whether weights are sharded; never with one process."""
    return strategy != "ddp" and not processes.is_alone


def shard(forward: nn.Module, model: nn.Module, strategy: str, processes: Processes) -> None:
    """Shard a model in place: each decoder block is one unit, the rest (embedding, norm, head) another.

    `forward` is the module through which the update reaches every parameter; `model` is whole, and alike on every
    process.

    Raises:
        UsageError: the model's blocks cannot be found, or its weights are in 4 bits.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if any(type(parameter).__name__ == "Params4bit" for parameter in model.parameters()):
        raise UsageError(f"scale.strategy = {strategy!r} cannot share out 4-bit weights: use ddp")
    device = next(model.parameters()).device
    mesh = init_device_mesh(device.type, (processes.num_processes,))
    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": strategy == "fsdp2"}
    for block in decoder_blocks(model):
        fully_shard(block, **options)
    fully_shard(forward, **options)
    for module in forward.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no sum with a factor


def shard_frozen(model: nn.Module, strategy: str, processes: Processes) -> None:
    """Shard the blocks of a frozen model too, with the strategy that wants no whole copy per process ("fsdp2")."""
    if strategy == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(next(model.parameters()).device.type, (processes.num_processes,))
        for block in decoder_blocks(model):
            fully_shard(block, mesh=mesh)


def decoder_blocks(model: nn.Module) -> list[nn.Module]:
    """The transformer blocks of a language model: the longest list of equal modules in it.

    Raises:
        UsageError: there is none.
    """
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList) and len(module)]
    alike = [blocks for blocks in lists if len({type(block) for block in blocks}) == 1]
    if not alike:
        raise UsageError(f"scale.strategy: {type(model).__name__} has no list of decoder blocks to share out; use ddp")
    return max(alike, key=lambda blocks: sum(p.numel() for block in blocks for p in block.parameters()))


def whole(tensor: Tensor) -> Tensor:
    """The whole of a sharded tensor, on every process; all must call it. Any other tensor is returned as it is."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def write_shard(own: Tensor, value: Tensor) -> None:
    """Copy this process's piece of a whole tensor into a sharded one, without communication."""
    own.copy_(shard_like(own, value))


def shard_like(own: Tensor, value: Tensor) -> Tensor:
    """A whole tensor sharded as `own` is: each process takes its piece. It stays whole if `own` is whole."""
    if not hasattr(own, "full_tensor"):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(own, DTensor)
    return distribute_tensor(value.to(own.device), own.device_mesh, own.placements, src_data_rank=None)


def shard_moment(model: nn.Module) -> Callable[[str, Tensor], Tensor]:
    """A function that shards the optimizer's whole tensors, named "kind/parameter", as the parameters are sharded."""
    parameters = dict(model.named_parameters())

    def cut(name: str, value: Tensor) -> Tensor:
        own = parameters.get(name.partition("/")[2])
        return value if own is None or own.shape != value.shape else shard_like(own, value)

    return cut


def collect(tensors: Mapping[str, Tensor], processes: Processes) -> dict[str, Tensor]:
    """Sharded tensors as whole ones in process 0's main memory, one at a time; the others get none. All call it."""
    found = {}
    for name, tensor in tensors.items():
        full = whole(tensor)
        if processes.is_main:
            found[name] = full.cpu()
    return found
