"""Weights where other processes can read them: one tensor behind the other in an anonymous file, and a table of them.

The layout is that of safetensors with its header kept apart: the size of a file is known only after its last tensor.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from podsrl.lib.matmul import Library, in_use
from podsrl.sync.digest import Samples

_ALIGNMENT = 64
_WRITE_BYTES = 1 << 30
"""Linux writes at most 2 GiB at once."""


class Place(TypedDict):
    """Where one tensor stands."""

    dtype: str
    """As torch names it: "float32"."""
    shape: list[int]
    start: int
    """First byte."""


class Table(TypedDict):
    """What the bytes are; plain JSON."""

    version: int
    """Optimizer steps that the weights have seen."""
    num_bytes: int
    digest: str
    """`weights_digest` of them."""
    matmul: Library
    """Which library computes the run's float32 products."""
    places: dict[str, Place]


class SharedWeights:
    """The newest weights of a run, in memory that has no name and goes when the last process lets go of it.

    It is the store of a pool of `ProcessGenerator`s: written once, whatever their number.

    The same memory is written again by every `put`, so nobody may read meanwhile.
    """

    def __init__(self) -> None:
        self._descriptor = _anonymous_file()
        self.table: Table | None = None
        """Of the weights that were put last."""

    def put(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Write weights, one tensor at a time."""
        self.table = None
        places: dict[str, Place] = {}
        samples, end = Samples(), 0
        for name, tensor in named_tensors:
            samples.add(name, tensor)
            dtype = str(tensor.dtype).removeprefix("torch.")
            places[name] = {"dtype": dtype, "shape": list(tensor.shape), "start": end}
            end = self._write(tensor, end)
        self.table = {
            "version": version,
            "num_bytes": end,
            "digest": samples.digest(),
            "matmul": in_use(),
            "places": places,
        }

    def give(self, member: Any) -> None:
        """Let a `ProcessGenerator` sample from the weights that were put last."""
        member.take(self.table, self._descriptor)

    @property
    def descriptor(self) -> int:
        """Of the file that holds the bytes."""
        return self._descriptor

    def close(self) -> None:
        """Let go of the memory."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self.table = -1, None

    def _write(self, tensor: Tensor, start: int) -> int:
        """Returns where the next tensor may start."""
        values = tensor.detach().cpu().contiguous().reshape(-1)
        data: memoryview = values.view(torch.uint8).numpy().data if values.numel() else memoryview(b"")
        place = start
        while data:
            count = os.pwrite(self._descriptor, data[:_WRITE_BYTES], place)
            data, place = data[count:], place + count
        return -(-place // _ALIGNMENT) * _ALIGNMENT


def mapped(descriptor: int, table: Table) -> Any:
    """The bytes behind a descriptor, without a copy; writing into them does not reach the file."""
    if table["num_bytes"] == 0:
        return b""
    size = os.fstat(descriptor).st_size
    return mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def tensors_in(table: Table, data: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a table, which share memory with `data` (bytes, a mapping, or an array of uint8)."""
    whole = np.frombuffer(data, dtype=np.uint8)
    for name, place in table["places"].items():
        dtype = getattr(torch, place["dtype"])
        count = prod(place["shape"])
        part = whole[place["start"] : place["start"] + count * dtype.itemsize]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the array may be read-only, and nobody writes into it
            yield name, torch.from_numpy(part).view(dtype).reshape(place["shape"])


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create("podsrl-weights")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
