"""Several vLLM servers as members of one generator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from podsrl.generate.vllm.handover import DEFAULT_FOLDER, WeightFolder
from podsrl.generate.vllm.server import VLLMServer


class FolderStore:
    """The newest weights for several servers, written once: the store of a pool of `VLLMServer`.

    Args:
        url: of the first server.
        folder: as of `VLLMServer`, whose other options may be there too.
    """

    def __init__(self, url: str, *, folder: str = DEFAULT_FOLDER, **options: Any) -> None:
        self._weights, self._path, self._version, self._num_puts = WeightFolder(folder, url), "", 0, 0

    def put(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Keep these weights instead of those before."""
        self._num_puts, self._version = self._num_puts + 1, version
        self._path = self._weights.write(named_tensors, f"{version}-all{self._num_puts}")

    def give(self, member: VLLMServer) -> None:
        """Let a server load the weights that were put last."""
        member.load_folder(self._path, self._version)

    def close(self) -> None:
        """Remove the weights."""
        self._weights.close()
