"""Weights for a server on files: a folder that both sides see, and a lock by which a server belongs to one run.

Everything has a name `podsrl-<hash of the address>…` and is readable by its owner alone. What a killed run left behind is
removed by the next one that gets the lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from podsrl.errors import PodsError, UsageError

MAX_FILE_BYTES = 2**30
"""Tensors are gathered up to so many bytes, then written: the copy in memory is no larger, or one tensor."""


class Handover:
    """Takes the lock of a server.

    Args:
        parent: a folder that the server sees under the same path.
        url: of the server.

    Raises:
        UsageError: no such folder, or another run has the server.
    """

    def __init__(self, parent: str, url: str) -> None:
        self._option = f"options.vllm.folder = {parent!r}"
        name = hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
        self._parent, self._name, self._folder = Path(parent).absolute(), f"podsrl-{name}", None
        if not self._parent.is_dir():
            raise UsageError(f"{self._option}: no such folder; wanted one that the servers see under the same path")
        self._lock_path = self._parent / f"{self._name}.lock"
        self._lock = self._take_lock(url)
        for left in self._parent.glob(f"{self._name}-*"):
            shutil.rmtree(left, ignore_errors=True)

    _folder: Path | None
    """Of the newest weights."""

    def write(self, named_tensors: Iterable[tuple[str, torch.Tensor]], label: str) -> str:
        """Write weights in place of the last ones, in safetensors files.

        Each tensor is only looked at until the next one is asked for.

        Args:
            label: a name for the folder, of letters, digits and "-".

        Returns:
            The folder. It stays until the next weights are written, so that a server that restarts can load them again.

        Raises:
            PodsError: they cannot be written; what was written is removed.
        """
        self.clear()
        folder = self._folder = self._parent / f"{self._name}-{os.getpid()}-{label}"
        try:
            folder.mkdir(mode=0o700)
            found, num_bytes, num_files = dict[str, torch.Tensor](), 0, 0
            for name, tensor in named_tensors:
                found[name] = tensor.detach().to("cpu", copy=True).contiguous()
                num_bytes += found[name].nbytes
                if num_bytes >= MAX_FILE_BYTES:
                    save_file(found, folder / f"model-{num_files:05d}.safetensors")
                    found, num_bytes, num_files = {}, 0, num_files + 1
            if found or not num_files:
                save_file(found, folder / f"model-{num_files:05d}.safetensors")
        except (OSError, SafetensorError) as error:
            self.clear()
            raise PodsError(
                f"{self._option}: the weights cannot be written there ({error}); wanted a folder that the servers see "
                "too, with room for one copy of the weights per server"
            ) from error
        except BaseException:
            self.clear()
            raise
        return str(folder)

    def clear(self) -> None:
        """Remove the weights."""
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything, and give the server back."""
        self.clear()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            self._lock_path.unlink(missing_ok=True)  # while the lock is held: nobody else removes another one's file
            os.close(lock)

    def _take_lock(self, url: str) -> int:
        while True:
            try:
                lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise UsageError(
                    f"{self._option}: {self._lock_path.name} cannot be opened there ({error.strerror}); wanted a folder "
                    f"that this user can write to, and that no other user's run uses for {url}"
                ) from error
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(lock, self._lock_path):  # else the last holder has just removed it
                    os.ftruncate(lock, 0)
                    os.write(lock, f"{os.getpid()}\n".encode())
                    return lock
            except BlockingIOError:
                holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
                os.close(lock)
                raise UsageError(
                    f"rollouts.generator: another run (process {holder or 'unknown'}) uses the server {url}; one server "
                    "has the weights of one run: start a second server, or wait"
                ) from None
            os.close(lock)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
