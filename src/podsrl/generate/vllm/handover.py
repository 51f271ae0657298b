"""Weights for servers, in a folder that both sides see; and locks.

Everything has a name `podsrl-…`, is readable by its owner alone and goes with the run. What a killed run left behind is
removed by the next one that writes there: nobody holds its lock any more.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from podsrl.errors import PodsError, UsageError
from podsrl.generate.base import Setting

if TYPE_CHECKING:
    from podsrl.generate.vllm.server import VLLMServer

DEFAULT_FOLDER = "/dev/shm"
RUN = secrets.token_hex(6)
"""Names this process on servers and in folders."""
_FILE_BYTES = 1 << 30
"""A file is written when so much has come: until then its tensors are held twice."""
_numbers = count()


def name_of(url: str) -> str:
    """How the lock of a server is called.

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
    """

    def __init__(self, parent: str) -> None:
        self._parent = parent
        self._remove: Callable[[], object] = lambda: None
        """Also with the object or the process, at the latest."""

    def write(self, named_tensors: Iterable[tuple[str, Tensor]]) -> str:
        """Write weights in place of the last ones.

        Each tensor is only looked at until the next one is asked for.

        Returns:
            The folder's path. It stays until the next weights are written.

        Raises:
            UsageError: there is no folder to write to.
            PodsError: the weights cannot be written; what was written is removed.
        """
        self.close()
        above = check_parent(self._parent)
        _remove_left(above)
        folder = above / f"podsrl-{RUN}-{next(_numbers)}"
        try:
            lock = folder.with_suffix(".lock")
            self._remove = weakref.finalize(self, _remove, folder, lock, _locked(lock), os.getpid())
            folder.mkdir(mode=0o700)
            _write(named_tensors, folder)
        except OSError as error:
            self.close()
            raise PodsError(
                f"options.vllm.folder = {self._parent!r}: the weights cannot be written there "
                f"({error.strerror or error}); wanted a folder that the servers see too, with room for the weights"
            ) from None
        except BaseException:
            self.close()
            raise
        return str(folder)

    def close(self) -> None:
        """Remove the weights."""
        self._remove()


class FolderStore:
    """The newest weights for servers, written once for all: the store of a pool of `VLLMServer`.

    Args:
        setting: of the run.
        folder: as of `VLLMServer`, whose other options may be there too.
    """

    def __init__(self, setting: Setting, *, folder: str = DEFAULT_FOLDER, **options: Any) -> None:
        self._tied = tied_names(setting)
        self._weights, self._path, self._version = WeightFolder(folder), "", 0

    def put(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Keep these weights instead of those before."""
        self._path, self._version = self._weights.write(with_tied(named_tensors, self._tied)), version

    def give(self, member: VLLMServer) -> None:
        """Let a server load the weights that were put last."""
        member.load_folder(self._path, self._version)

    def close(self) -> None:
        """Remove the weights."""
        self._weights.close()


class ServerLock:
    """Makes a server this run's own, among the runs of this machine.

    Args:
        parent: the folder of the weights.
        url: of the server.

    Raises:
        UsageError: no such folder, or another run has the server.
    """

    def __init__(self, parent: str, url: str) -> None:
        path = check_parent(parent) / f"{name_of(url)}.lock"
        try:
            lock = _locked(path)
        except BlockingIOError as error:
            raise UsageError(
                f"rollouts.generator: another run (process {error.filename}) uses the server {url}; one server has "
                "the weights of one run: start a second server, or wait"
            ) from None
        except OSError as error:
            raise UsageError(
                f"options.vllm.folder = {parent!r}: {path.name} cannot be opened there ({error.strerror}); wanted a "
                f"folder that this user can write to, and that no other user's run uses for {url}"
            ) from error
        self.close = weakref.finalize(self, _release, path, lock, os.getpid())
        """Gives the server back; also with the object or the process, at the latest."""


def read_config(setting: Setting) -> Any:
    """What transformers reads of the model folder's config."""
    from transformers import AutoConfig

    options = {"revision": setting.revision, "trust_remote_code": setting.trust_remote_code}
    return AutoConfig.from_pretrained(setting.folder, **options)


def tied_names(setting: Setting) -> dict[str, tuple[str, ...]]:
    """Name of a weight -> the other names of the same one, of a model folder's architecture; most models have none.

    Raises:
        UsageError: the model's config cannot be read.
    """
    from transformers import AutoModelForCausalLM

    try:
        config = read_config(setting)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=setting.trust_remote_code)
            model.tie_weights()
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(f"model.path = {setting.folder!r}: its config cannot be read: {error}") from None
    names: dict[Tensor, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(weight, []).append(name)
    return {first: tuple(others) for first, *others in names.values() if others}


def with_tied(
    named_tensors: Iterable[tuple[str, Tensor]], tied: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, Tensor]]:
    """Tied weights under all of their names: on a CPU vLLM packs a copy for the head, and renews it by its own name."""
    for name, tensor in named_tensors:
        for each in (name, *tied.get(name, ())):
            yield each, tensor


def _write(named_tensors: Iterable[tuple[str, Tensor]], folder: Path) -> None:
    """At least one file. OSError: there is no room for them."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    held: dict[str, Tensor] = {}
    num_bytes = num_files = 0

    def save() -> None:
        try:
            save_file(held, folder / f"model-{num_files:05}.safetensors")
        except SafetensorError as error:
            raise OSError(str(error)) from None
        held.clear()

    for name, tensor in named_tensors:
        held[name] = tensor.detach().to("cpu", copy=True).contiguous()
        num_bytes += tensor.nbytes
        if num_bytes >= _FILE_BYTES:
            save()
            num_bytes, num_files = 0, num_files + 1
    if held or not num_files:
        save()


def _locked(path: Path) -> int:
    """A descriptor of the file, which says whose it is; the lock lasts as long as that.

    Raises:
        BlockingIOError: another one has it; `filename` is the holder's process id.
        OSError: the file cannot be opened.
    """
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise BlockingIOError(error.errno, error.strerror, holder or "unknown") from None
        if _is_at(lock, path):  # else the last holder has just removed it
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
            return lock
        os.close(lock)


def _remove_left(above: Path) -> None:
    """Remove what is of no living process."""
    for path in above.glob("podsrl-*.lock"):
        with suppress(OSError):
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(lock, path):
                    shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                    path.unlink()
            finally:
                os.close(lock)


def _remove(folder: Path, path: Path, lock: int, process: int) -> None:
    if os.getpid() == process:  # not in a child that was forked
        shutil.rmtree(folder, ignore_errors=True)
    _release(path, lock, process)


def _release(path: Path, lock: int, process: int) -> None:
    if os.getpid() == process:
        path.unlink(missing_ok=True)  # while the lock is held: nobody else removes another one's file
    os.close(lock)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
