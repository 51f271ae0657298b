"""Checkpoints: complete or not there.

    step-00000012/
      model/                  weights, config and tokenizer in Hugging Face layout
      optimizer.safetensors   moments by parameter name
      parts.safetensors       arrays that parts of the config remember, by "part/key", and the step that has begun
                          (run/step/round.py); absent where there are none
      state.json              step, version, data position, seconds, sizes of the logs, the config
      manifest.json           size and SHA-256 of every file above

Written to a hidden folder, forced to disk, then renamed. Loading checks every file against the manifest; a damaged
checkpoint is named and the one before is used. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file
from torch import Tensor

from podsrl.errors import CheckpointError
from podsrl.lib.logs import read_object

MANIFEST = "manifest.json"
STATE = "state.json"
PARTS = "parts.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint."""

    path: Path
    state: Mapping[str, Any]
    damaged: tuple[str, ...] = ()
    """One line for each newer checkpoint that was passed over."""

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def digest(self) -> str:
        """Digest of its table of files, so of all that is in it."""
        return _sha256(self.path / MANIFEST)

    def optimizer(self, convert: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor) -> dict[str, Tensor]:
        """Moments by name, read one at a time; `convert` (name, whole tensor) may keep a piece of each only."""
        with safe_open(self.path / "optimizer.safetensors", framework="pt") as tensors:
            return {name: convert(name, tensors.get_tensor(name)) for name in tensors.keys()}  # noqa: SIM118

    def parts(self) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays that parts remember, by "part/key"."""
        file = self.path / PARTS
        return load_arrays(file) if file.exists() else {}


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:08d}"


def save_checkpoint(
    folder: Path,
    *,
    save_model: Callable[[Path], None],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int,
    parts: Mapping[str, np.ndarray[Any, Any]] = MappingProxyType({}),
) -> Path:
    """Write `folder`/step-N for N = state["step"], then remove all but it and the `keep` - 1 before it.

    `save_model` writes weights, config and tokenizer into the folder that it gets; `optimizer` holds moments by
    parameter name, `parts` the arrays that parts remember; `state` is plain JSON.
    """
    final = checkpoint_path(folder, state["step"])
    for abandoned in folder.glob(".step-*.tmp"):
        _remove(abandoned)
    if final.exists() and not _is_sound(final):
        _remove_whole(final)
    if not final.exists():
        _write(final, save_model, optimizer, state, parts)
    # Newer ones than this are damaged (else the run had gone on from them) and must not crowd out the sound ones.
    older = [path for path in _newest_first(folder) if path.name < final.name]
    for old in older[keep - 1 :]:
        _remove_whole(old)
    return final


def _write(
    final: Path,
    save_model: Callable[[Path], None],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    parts: Mapping[str, np.ndarray[Any, Any]],
) -> None:
    """Write a checkpoint beside its place, force it to disk, and rename it."""
    temporary = _beside(final)
    save_model(temporary / "model")
    save_file(dict(optimizer), temporary / "optimizer.safetensors")
    if parts:
        save_arrays(dict(parts), temporary / PARTS)
    (temporary / STATE).write_text(json.dumps(state, indent=1))
    (temporary / MANIFEST).write_text(json.dumps(_describe_files(temporary), indent=1))
    for path in (temporary, *temporary.rglob("*")):
        _force_to_disk(path)
    temporary.rename(final)
    _force_to_disk(final.parent)


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest undamaged checkpoint, or None where none was ever finished.

    Raises:
        CheckpointError: there are checkpoints and all are damaged.
    """
    damaged: list[str] = []
    for path in _newest_first(folder):
        try:
            verify(path)
        except CheckpointError as error:
            damaged.append(str(error))
        else:
            return open_checkpoint(path, damaged)
    if damaged:
        raise CheckpointError("no usable checkpoint: " + "; ".join(damaged))
    return None


def open_checkpoint(path: Path, damaged: Sequence[str] = ()) -> Checkpoint:
    """A checkpoint that has been verified; `damaged` as in `Checkpoint`."""
    return Checkpoint(path, read_object(path / STATE), tuple(damaged))


def verify(path: Path) -> None:
    """Check every file of a checkpoint against its manifest.

    Raises:
        CheckpointError: naming the first file that is missing, truncated or altered.
    """
    manifest = read_object(path / MANIFEST)
    if STATE not in manifest:
        raise CheckpointError(f"{path / MANIFEST} is damaged: it does not list {STATE}")
    for name, entry in manifest.items():
        try:
            _check_file(path / name, entry["bytes"], entry["sha256"])
        except OSError as error:
            raise CheckpointError(f"{path / name} is missing or cannot be read: {error.strerror}") from None
        except (KeyError, TypeError):
            raise CheckpointError(f"{path / MANIFEST} is damaged: its entry of {name}") from None


def _check_file(file: Path, size: int, digest: str) -> None:
    if (found := file.stat().st_size) != size:
        raise CheckpointError(f"{file} is truncated: {found} bytes, wanted {size}")
    if _sha256(file) != digest:
        raise CheckpointError(f"{file} is damaged: its contents differ from what was written")


def _is_sound(path: Path) -> bool:
    try:
        verify(path)
    except CheckpointError:
        return False
    return True


def _beside(path: Path) -> Path:
    """Where a checkpoint is while it is not whole; what stands there goes with the next save."""
    return path.with_name(f".{path.name}.tmp")


def _remove_whole(path: Path) -> None:
    """Remove a checkpoint; a kill leaves nothing that looks like one."""
    if path.is_dir() and not path.is_symlink():
        path = path.rename(_beside(path))
    _remove(path)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _describe_files(folder: Path) -> dict[str, dict[str, int | str]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(file.relative_to(folder)): {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in files}


def _newest_first(folder: Path) -> list[Path]:
    """Only names of our own making: what a user put beside them ("step-00000012-best") is neither read nor removed."""
    return sorted(folder.glob("step-" + "[0-9]" * 8), reverse=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
