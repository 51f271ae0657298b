"""Weights for servers on files: a folder that both sides see, and a lock by which a server belongs to one run.

Everything has a name `podsrl-<hash of an address>…` and is readable by its owner alone. What a killed run left behind
is removed by the next one that gets the lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file

from podsrl.errors import PodsError, UsageError
from podsrl.generate.vllm.weights import write_weights

DEFAULT_FOLDER = "/dev/shm"
RUN = secrets.token_hex(6)
"""Names this process on servers and in folders."""


def name_of(url: str) -> str:
    """How all files for a server begin.

    Example:
        >>> name_of("http://127.0.0.1:8000")
        'podsrl-fb79b70c0d34a974'
    """
    return "podsrl-" + hashlib.blake2b(url.encode(), digest_size=8).hexdigest()


def check_parent(parent: str) -> Path:
    """The folder that `options.vllm.folder` names. UsageError: there is none, or it cannot be written to."""
    folder = Path(parent).absolute()
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"options.vllm.folder = {parent!r}: no such folder that can be written to; wanted one that the servers see "
            "under the same path"
        )
    return folder


class WeightFolder:
    """The newest weights as a folder of safetensors files.

    Args:
        parent: a folder that the servers see under the same path.
        url: of the server, or of the first of several that share the weights.
    """

    def __init__(self, parent: str, url: str) -> None:
        self._option, self._name = f"options.vllm.folder = {parent!r}", name_of(url)
        self._parent = Path(parent).absolute()
        self._folder: Path | None = None

    def write(self, named_tensors: Iterable[tuple[str, torch.Tensor]], label: str) -> str:
        """Write weights in place of the last ones.

        Each tensor is only looked at until the next one is asked for.

        Args:
            label: a name for them, of letters, digits and "-".

        Returns:
            The folder's path. It stays until the next weights are written, for a server that restarts.

        Raises:
            PodsError: they cannot be written; what was written is removed.
        """
        self.close()
        folder = self._folder = self._parent / f"{self._name}-{RUN}-{label}"
        try:
            folder.mkdir(mode=0o700)
            write_weights(named_tensors, folder)
            if not any(folder.iterdir()):
                save_file({}, folder / "model.safetensors")
        except OSError as error:
            self.close()
            raise PodsError(
                f"{self._option}: the weights cannot be written there ({error}); wanted a folder that the servers see "
                "too, with room for the weights"
            ) from None
        except BaseException:
            self.close()
            raise
        return str(folder)

    def close(self) -> None:
        """Remove the weights."""
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


class ServerLock:
    """Makes a server this run's own, among the runs of this machine.

    Args:
        parent: the folder of the weights.
        url: of the server.

    Raises:
        UsageError: no such folder, or another run has the server.
    """

    def __init__(self, parent: str, url: str) -> None:
        self._option, folder = f"options.vllm.folder = {parent!r}", check_parent(parent)
        self._path = folder / f"{name_of(url)}.lock"
        self._lock = self._take(url)
        for left in folder.glob(f"{name_of(url)}-*"):
            if not left.name.startswith(f"{name_of(url)}-{RUN}-"):
                shutil.rmtree(left, ignore_errors=True)

    def close(self) -> None:
        """Give the server back."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            self._path.unlink(missing_ok=True)  # while the lock is held: nobody else removes another one's file
            os.close(lock)

    def _take(self, url: str) -> int:
        while True:
            try:
                lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise UsageError(
                    f"{self._option}: {self._path.name} cannot be opened there ({error.strerror}); wanted a folder "
                    f"that this user can write to, and that no other user's run uses for {url}"
                ) from error
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(lock, self._path):  # else the last holder has just removed it
                    os.ftruncate(lock, 0)
                    os.write(lock, f"{os.getpid()}\n".encode())
                    return lock
            except BlockingIOError:
                holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
                os.close(lock)
                raise UsageError(
                    f"rollouts.generator: another run (process {holder or 'unknown'}) uses the server {url}; one "
                    "server has the weights of one run: start a second server, or wait"
                ) from None
            os.close(lock)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
