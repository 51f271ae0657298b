"""The key-value memory that is truly held, seen from outside: every operation of torch is watched for what it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef  # type: ignore[attr-defined]
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class HeldMemory(TorchDispatchMode):
    """Adds up the storages of keys and values that are alive after each operation.

    Keys and values are told by their shape: [..., heads, length, width of a head]; or they are memory not yet divided,
    [tensors, numbers], or a copy of lines of such memory. What is kept of a prompt's last token is a copy of a vector.
    What a forward pass makes and lets go is its own affair; what it leaves behind counts.

    Args:
        engine: is watched from now on.
        head_dim: of its model.
    """

    def __init__(self, engine: Any, head_dim: int) -> None:
        super().__init__()
        self.peak = 0
        self._head_dim, self._is_forward = head_dim, False
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}
        engine.forward = _Watched(engine.forward, self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and self._is_kept(func, tensor):
                storage = tensor.untyped_storage()
                self._storages.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        if not self._is_forward:
            self.look()
        return made

    def look(self) -> None:
        """Forget what has been let go; add up the rest."""
        self._storages = {key: held for key, held in self._storages.items() if not held[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._storages.values()))

    def forwarded(self, is_forward: bool) -> None:
        self._is_forward = is_forward
        if not is_forward:
            self.look()

    def _is_kept(self, func: Any, tensor: Tensor) -> bool:
        if tensor.dim() > 3:
            return tensor.shape[-1] == self._head_dim
        is_copy = func is torch.ops.aten.clone.default and (tensor.dim() == 1 or tensor.shape[-1] % self._head_dim == 0)
        return not self._is_forward and (is_copy or (func is torch.ops.aten.empty.memory_format and tensor.dim() == 2))


class _Watched:
    """A decode step that says when it runs."""

    def __init__(self, forward: Any, held: HeldMemory) -> None:
        self._forward, self._held = forward, held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._forward, name)

    def read(self, prompts: Sequence[Sequence[int]], *args: Any) -> Any:
        return self._run(self._forward.read, prompts, *args)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._run(self._forward, *args, **options)

    def _run(self, function: Any, *args: Any, **options: Any) -> Any:
        self._held.forwarded(True)
        try:
            return function(*args, **options)
        finally:
            self._held.forwarded(False)
