"""A folder of weights for other processes of this machine, in shared memory, that never outlives its use."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import Tensor

from podsrl.errors import UsageError

SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "podsrl-weights-"
_NEW_SECONDS = 60
"""A folder younger than this may not be locked yet."""
_FILE_BYTES = 1 << 30
"""A file is written when so much has come: until then its tensors are held twice."""


@contextmanager
def weights_folder(named_tensors: Iterable[tuple[str, Tensor]], parent: str = "") -> Iterator[Path]:
    """A new folder with these weights as safetensors files, removed with the context.

    What a process that was killed has left behind is removed by the next one that comes here.

    Args:
        named_tensors: each is copied before the next is asked for.
        parent: where to make the folder; "": in shared memory where there is one, else where temporary files go.

    Raises:
        UsageError: it cannot be written there.
    """
    above = Path(parent) if parent else SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    remove_left_folders(above)
    try:
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=above) as name, _held(Path(name)):
            write_weights(named_tensors, Path(name))
            yield Path(name)
    except OSError as error:
        raise UsageError(
            f"weights for vLLM cannot be written to {above}: {error.strerror or error}; make room there, or name "
            "another folder with options.vllm.weights_folder"
        ) from None


def remove_left_folders(above: Path) -> None:
    """Remove folders whose process is gone: nobody holds their lock any more."""
    for folder in above.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _NEW_SECONDS:
                with _held(folder):
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """OSError: another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def write_weights(named_tensors: Iterable[tuple[str, Tensor]], folder: Path) -> None:
    """Write safetensors files into a folder; each tensor is copied before the next is asked for.

    OSError: there is no room for them.
    """
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
    if held:
        save()
