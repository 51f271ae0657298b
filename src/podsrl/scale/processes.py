"""The processes that share a run, as one of them sees them. With one process, all collectives are no-ops.

Processes are started by `pods launch`, torchrun or accelerate launch, all of which set RANK, WORLD_SIZE and the address
to meet at; accelerate's PartialState reads them. Small values and columns go through gloo on the CPU; gradients and
sharded weights go through NCCL if the model is on GPUs, through gloo otherwise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from podsrl.config.load import with_values
from podsrl.config.schema import RunConfig
from podsrl.errors import PodsError, UsageError
from podsrl.scale.launch import num_processes

T = TypeVar("T")

_SIGNS_OF_LOSS = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out")


class LostProcess(PodsError):
    """Another process of the run has ended, or did not answer in time."""


class Processes:
    """This process among all.

    Args:
        rank: 0 .. num_processes - 1; process 0 decides by the clock, shows and writes.
        num_processes: of the run.
        num_here: of them on this machine.
        device: of this process's model; None: as the config says.
        group: torch.distributed's group for bytes in the computer's memory.

    Example:
        >>> alone = Processes()
        >>> alone.is_main, alone.broadcast({"stop": False}), alone.gather(3), alone.share(["a", "b"])
        (True, {'stop': False}, [3], ['a', 'b'])
    """

    def __init__(
        self,
        rank: int = 0,
        num_processes: int = 1,
        *,
        num_here: int = 1,
        device: torch.device | None = None,
        group: Any = None,
    ) -> None:
        self.rank, self.num_processes, self.num_here, self.device = rank, num_processes, num_here, device
        self._group = group

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.num_processes == 1

    @property
    def is_one_machine(self) -> bool:
        return self.num_here >= self.num_processes

    def place(self, config: RunConfig) -> RunConfig:
        """A run's config with this process's own device."""
        return config if self.device is None else with_values(config, model={"device": str(self.device)})

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This process's share of a list that all processes have: every K-th item."""
        return items if self.is_alone else items[self.rank :: self.num_processes]

    def broadcast(self, value: T) -> T:
        """Process 0's value, on every process. It has to be plain JSON; numbers stay exact."""
        if self.is_alone:
            return value
        return self.gather(value if self.is_main else cast(T, None))[0]

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank, on every process. They have to be plain JSON."""
        if self.is_alone:
            return [value]
        return [json.loads(data) for data in self.gather_bytes(json.dumps(value).encode())]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """The bytes of all processes, by rank, on every process."""
        if self.is_alone:
            return [data]
        from torch import distributed

        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.num_processes)]
        distributed.all_gather(sizes, torch.tensor([len(data)]), group=self._group)
        lengths = [int(size) for size in sizes]
        own = torch.zeros(max(1, *lengths), dtype=torch.uint8)
        if data:
            own[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        found = [torch.empty_like(own) for _ in lengths]
        distributed.all_gather(found, own, group=self._group)
        return [tensor[:length].numpy().tobytes() for tensor, length in zip(found, lengths, strict=True)]

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place, on the device it is on."""
        if not self.is_alone:
            from torch import distributed

            distributed.all_reduce(tensor)
        return tensor

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Turn the libraries' errors about a lost process into `LostProcess`."""
        try:
            yield
        except RuntimeError as error:
            if self.is_alone or not any(sign in str(error) for sign in _SIGNS_OF_LOSS):
                raise
            cause = str(error).strip().splitlines()[0]
            raise LostProcess(
                f"process {self.rank}: another process of this run ended, or did not answer within "
                f"scale.timeout_seconds ({cause}); its own error says why"
            ) from None

    def close(self) -> None:
        """Leave the other processes when all call this; nothing can be exchanged afterwards."""
        if not self.is_alone:
            from accelerate import PartialState

            self.gather(None)  # process 0 may hold what another still uses, such as a Ray cluster
            PartialState().destroy_process_group()


def join_processes(device: str = "auto", timeout_seconds: float = 1800.0) -> Processes:
    """Meet the other processes of this run, if the environment names any; `device` is `model.device`.

    Raises:
        UsageError: fewer GPUs than processes, or a device that only one process can have.
    """
    if num_processes() == 1:
        return Processes()
    num_here = int(os.environ.get("LOCAL_WORLD_SIZE", num_processes()))
    on_gpu = uses_gpus(device, num_here)
    from accelerate import PartialState
    from torch import distributed

    patience = timedelta(seconds=timeout_seconds)
    state = PartialState(cpu=not on_gpu, backend="nccl" if on_gpu else "gloo", timeout=patience)
    group = distributed.new_group(backend="gloo", timeout=patience) if on_gpu else distributed.group.WORLD
    place = torch.device("cuda", state.local_process_index) if on_gpu else torch.device("cpu")
    return Processes(state.process_index, state.num_processes, num_here=num_here, device=place, group=group)


def uses_gpus(device: str, num_here: int) -> bool:
    """Whether each of the processes on this machine takes a GPU.

    Raises:
        UsageError: fewer GPUs than processes, or a device that only one process can have.
    """
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return False
    if device not in ("auto", "cuda"):
        raise UsageError(
            f"model.device = {device!r} with several processes: each takes a GPU of its own; use auto, cuda or cpu"
        )
    if torch.cuda.device_count() < num_here:
        raise UsageError(
            f"{num_here} processes on this machine, but torch sees {torch.cuda.device_count()} GPUs, and each process "
            "needs its own: start fewer, or set model.device=cpu"
        )
    return True
