"""Checkpoints: complete or not there.

    step-00000012/
      model/                  weights, config and tokenizer in Hugging Face layout
      optimizer.safetensors   moments by parameter name
      parts.safetensors       arrays that parts of the config remember, by "part/key", and the step that has begun
                          (run/step/round.py); absent where there are none
      state.json              step, version, data position, seconds, sizes of the logs, the config (run/saving/state.py)
      manifest.json           size and SHA-256 of every file above

Written to a hidden folder, forced to disk, then renamed. Loading checks every file against the manifest, and whether
what is in it can be; a damaged checkpoint is named and the one before is used. Nothing is unpickled.
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
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file
from torch import Tensor

from podsrl.errors import CheckpointError, short
from podsrl.run.saving.state import read_object

MANIFEST = "manifest.json"
STATE = "state.json"
PARTS = "parts.safetensors"
FILES = "files"
"""Entry of the state: the digest of every other file, which shows a file that comes from another checkpoint."""


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
        """Moments by name, read one at a time; `convert` (name, whole tensor) may keep a piece of each only.

        Raises:
            CheckpointError: the file holds no tensors, or one that no optimizer step leaves behind.
        """
        file, found = self.path / "optimizer.safetensors", dict[str, Tensor]()
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  (no mapping)
                    tensor = tensors.get_tensor(name)
                    _check_moment(file, name, tensor)
                    found[name] = convert(name, tensor)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is damaged: {error}") from None
        steps = self.state.get("optimizer", {}).get("num_steps", 0)
        if steps > 0 and not any(name.startswith("step/") for name in found):
            raise CheckpointError(f"{file} is damaged: it holds no moments, and {steps} optimizer steps were made")
        return found

    def parts(self) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays that parts remember, by "part/key".

        Raises:
            CheckpointError: the file holds no arrays.
        """
        file = self.path / PARTS
        try:
            return load_arrays(file) if file.exists() else {}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is damaged: {error}") from None


def _check_moment(file: Path, name: str, tensor: Tensor) -> None:
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise CheckpointError(f"{file} is damaged: {name!r} holds numbers that are not finite")
    if name.startswith(("step/", "exp_avg_sq/")) and bool((tensor < 0).any()):
        raise CheckpointError(f"{file} is damaged: {name!r} holds a negative number")


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
    files = _describe_files(temporary)
    (temporary / STATE).write_text(json.dumps({**state, FILES: _digests(files)}, indent=1))
    (temporary / MANIFEST).write_text(json.dumps({**files, STATE: _describe(temporary / STATE)}, indent=1))
    for path in (temporary, *temporary.rglob("*")):
        _force_to_disk(path)
    temporary.rename(final)
    _force_to_disk(final.parent)


def load_newest(
    folder: Path,
    check: Callable[[Path, Mapping[str, Any]], None] = lambda path, state: None,
    *,
    before: Path | None = None,
    damaged: Sequence[str] = (),
) -> Checkpoint | None:
    """The newest undamaged checkpoint, or None where none was ever finished.

    Args:
        check: (path, state) of a candidate; it raises CheckpointError where what stands there cannot be.
        before: only checkpoints older than this one.
        damaged: a line for each newer one that was passed over already.

    Raises:
        CheckpointError: there are checkpoints and all are damaged.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder, so it holds no checkpoint")
    reasons = list(damaged)
    for path in _newest_first(folder):
        if before is not None and path.name >= before.name:
            continue
        try:
            verify(path)
            found = open_checkpoint(path, reasons)
            check(path, found.state)
        except CheckpointError as error:
            reasons.append(str(error))
            continue
        return found
    if reasons:
        raise CheckpointError("no usable checkpoint: " + "; ".join(reasons))
    return None


def set_aside(folder: Path, newest: Path) -> None:
    """Rename what is newer than the checkpoint that a run goes on from.

    Its manifest may agree with its files, and the save of the same step would then take it for its own.
    """
    for path in _newest_first(folder):
        if path.name > newest.name:
            aside = path.with_name(f"{path.name}-damaged")
            if aside.exists():
                _remove(aside)
            path.rename(aside)


def open_checkpoint(path: Path, damaged: Sequence[str] = ()) -> Checkpoint:
    """A checkpoint that has been verified; `damaged` as in `Checkpoint`."""
    state = {name: value for name, value in read_object(path / STATE).items() if name != FILES}
    return Checkpoint(path, state, tuple(damaged))


def verify(path: Path) -> None:
    """Check every file of a checkpoint against its manifest, and the manifest against what the state was saved with.

    Raises:
        CheckpointError: naming the first file that is missing, truncated, altered, or of another checkpoint.
    """
    expected = _read_manifest(path)
    try:
        for name, (size, digest) in expected.items():
            _check_file(path / name, size, digest)
        unknown = {str(file.relative_to(path)) for file in path.rglob("*.safetensors")} - set(expected)
    except OSError as error:
        raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}") from None
    if unknown:
        raise CheckpointError(f"{path / min(unknown)} is not in the manifest")
    table = read_object(path / STATE).get(FILES)
    found = {name: digest for name, (_, digest) in expected.items() if name != STATE}
    if table != found:
        known = table if isinstance(table, dict) else {}
        other = min(name for name in {*known, *found} if known.get(name) != found.get(name))
        raise CheckpointError(f"{path / other} is not the file that {STATE} was saved with")


def _read_manifest(path: Path) -> dict[str, tuple[int, str]]:
    """File -> bytes and digest."""
    manifest = read_object(path / MANIFEST)
    try:
        expected = {name: (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest.items()}
    except (ValueError, KeyError, TypeError, OverflowError):
        raise CheckpointError(f"{path / MANIFEST} is missing or damaged") from None
    for name in expected:
        if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise CheckpointError(f"{path / MANIFEST} is damaged: {short(name)} is no file of the checkpoint")
    for name in (STATE, "optimizer.safetensors"):
        if name not in expected:
            raise CheckpointError(f"{path / MANIFEST} is damaged: it does not list {name}")
    return expected


def _check_file(file: Path, size: int, digest: str) -> None:
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
    return {str(path.relative_to(folder)): _describe(path) for path in files}


def _describe(file: Path) -> dict[str, int | str]:
    return {"bytes": file.stat().st_size, "sha256": _sha256(file)}


def _digests(files: Mapping[str, Mapping[str, int | str]]) -> dict[str, int | str]:
    return {name: entry["sha256"] for name, entry in files.items()}


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
