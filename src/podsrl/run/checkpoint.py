"""Checkpoints: complete or not there.

    step-00000012/
      model/                  weights, config and tokenizer in Hugging Face layout
      optimizer.safetensors   moments by parameter name
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
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from podsrl.errors import CheckpointError

MANIFEST = "manifest.json"


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

    def optimizer(self, convert: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor) -> dict[str, Tensor]:
        """Moments by name, read one at a time; `convert` (name, whole tensor) may keep a piece of each only."""
        with safe_open(self.path / "optimizer.safetensors", framework="pt") as tensors:
            return {name: convert(name, tensors.get_tensor(name)) for name in tensors.keys()}  # noqa: SIM118


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
) -> Path:
    """Write `folder`/step-N for N = state["step"], then remove all but it and the `keep` - 1 before it.

    Args:
        folder: of all checkpoints.
        save_model: writes weights, config and tokenizer into the folder that it is given.
        optimizer: moments by parameter name.
        state: plain JSON.
        keep: checkpoints to keep, ≥ 1.
    """
    final = checkpoint_path(folder, state["step"])
    if final.exists():
        if _is_sound(final):
            return final
        shutil.rmtree(final)
    for abandoned in folder.glob(".step-*.tmp"):
        shutil.rmtree(abandoned)
    temporary = folder / f".{final.name}.tmp"
    save_model(temporary / "model")
    save_file(dict(optimizer), temporary / "optimizer.safetensors")
    (temporary / "state.json").write_text(json.dumps(state, indent=1))
    (temporary / MANIFEST).write_text(json.dumps(_describe_files(temporary), indent=1))
    for path in (temporary, *temporary.rglob("*")):
        _force_to_disk(path)
    temporary.rename(final)
    _force_to_disk(folder)
    # Newer ones than this are damaged (else the run had gone on from them) and must not crowd out the sound ones.
    older = [path for path in _newest_first(folder) if path.name < final.name]
    for old in older[keep - 1 :]:
        shutil.rmtree(old)
    return final


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
            continue
        return open_checkpoint(path, damaged)
    if damaged:
        raise CheckpointError("no usable checkpoint: " + "; ".join(damaged))
    return None


def open_checkpoint(path: Path, damaged: Sequence[str] = ()) -> Checkpoint:
    """A checkpoint that has been verified; `damaged` as in `Checkpoint`."""
    return Checkpoint(path, json.loads((path / "state.json").read_text()), tuple(damaged))


def verify(path: Path) -> None:
    """Check every file of a checkpoint against its manifest.

    Raises:
        CheckpointError: naming the first file that is missing, truncated or altered.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        expected = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{path / MANIFEST} is missing or damaged") from None
    if "state.json" not in expected:
        raise CheckpointError(f"{path / MANIFEST} is damaged: it does not list state.json")
    for name, (size, digest) in expected.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing")
        if file.stat().st_size != size:
            raise CheckpointError(f"{file} is truncated: {file.stat().st_size} bytes, wanted {size}")
        if _sha256(file) != digest:
            raise CheckpointError(f"{file} is damaged: its contents differ from what was written")


def _is_sound(path: Path) -> bool:
    try:
        verify(path)
    except CheckpointError:
        return False
    return True


def _describe_files(folder: Path) -> dict[str, dict[str, int | str]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(p.relative_to(folder)): {"bytes": p.stat().st_size, "sha256": _sha256(p)} for p in files}


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
