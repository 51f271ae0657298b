"""The files of a model's folder, in Hugging Face or PEFT layout: whether they lie in it, and what stands in them.

No library of models is imported, and no weights are read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open

from podsrl.errors import CheckpointError, UsageError
from podsrl.lib.logs import read_object

_READ = (".json", ".jinja", ".safetensors", ".model", ".txt", ".tiktoken")
_DESCRIPTIONS = ("config.json", ".index.json")
"""How their names end."""
_SAMPLE = 4096
"""Bytes of each tensor: small steps of training leave many 16-bit weights as they are, and not 2,048 of them."""


def check_files(folder: Path, given: str) -> None:
    """Check that a model's files lie in its folder, and that its descriptions can be read.

    Raises:
        UsageError: a file is a link out of the folder (the hub's cache links to the blobs beside it), or a description
            is no JSON object. transformers passes over a generation_config.json that it cannot read.
    """
    where, root = f"model.path = {given!r}", Path(os.path.realpath(folder))
    roots = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
    try:
        for file in sorted(each for each in folder.iterdir() if each.suffix in _READ):
            target = Path(os.path.realpath(file))
            if not any(target.is_relative_to(allowed) for allowed in roots):
                raise UsageError(
                    f"{where}: its {file.name} is a link to {target}, outside of the folder: copy that file into it"
                )
            if file.name.endswith(_DESCRIPTIONS):
                read_object(file)
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}: {error.filename}") from None
    except CheckpointError as error:
        raise UsageError(f"{where}: {error}") from None


def has_own_code(folder: Path) -> bool:
    """Whether a model's files name Python code to run, or hold code for generation."""
    return (folder / "custom_generate" / "generate.py").exists() or any(map(_names_code, folder.glob("*config.json")))


def _names_code(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_bytes()).get("auto_map"))
    except (OSError, ValueError, AttributeError):
        return False


def weight_files(folder: Path) -> list[Path]:
    """The files of a model's weights: those that its index names, else model.safetensors.

    A damaged index raises what reading JSON and looking into it raises.
    """
    index = folder / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"].values() if index.exists() else ["model.safetensors"]
    return [folder / name for name in sorted(set(names))]


def shapes_in(files: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of each tensor in some *.safetensors files; the tensors are not read.

    OSError, SafetensorError: a file cannot be read, or is damaged.
    """
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        with safe_open(file, framework="np") as tensors:
            found |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    return found


def files_digest(files: Sequence[Path]) -> str:
    """Digest *.safetensors files by their headers and the first `_SAMPLE` bytes of each tensor's second half.

    So a large model is digested in a fraction of a second, and other weights are told from these; it is no checksum.

    OSError, ValueError: a file cannot be read, or is damaged.
    """
    result = hashlib.blake2b(digest_size=16)
    for path in files:
        with path.open("rb") as file:
            start = 8 + (size := int.from_bytes(file.read(8), "little"))
            if start > path.stat().st_size:
                raise ValueError(f"{path}: a header of {size:,} bytes")
            header = file.read(size)
            result.update(header)
            for name, entry in sorted(json.loads(header).items()):
                if name != "__metadata__":
                    first, last = entry["data_offsets"]
                    file.seek(start + (first + last) // 2)
                    result.update(file.read(min(_SAMPLE, last - (first + last) // 2)))
    return result.hexdigest()
