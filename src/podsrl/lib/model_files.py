"""Check a downloaded model folder: it must not lead elsewhere, or describe a model of impossible size.

The checks read names, sizes and the small JSON files of a folder in Hugging Face or PEFT layout. They import no library
of models and read no weights.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import safe_open

from podsrl.errors import UsageError

_MIB = 1 << 20
_DESCRIPTIONS = ("config.json", "generation_config.json", "adapter_config.json", "tokenizer_config.json")
_MAX_BYTES = {
    **dict.fromkeys(_DESCRIPTIONS, 16 * _MIB),
    "chat_template.jinja": _MIB,
    "tokenizer.json": 512 * _MIB,
    "model.safetensors.index.json": 128 * _MIB,
}
"""Largest size of each file: ten times the largest known one."""
_READ = (".json", ".jinja", ".safetensors", ".model", ".txt", ".tiktoken")
_MOST = {
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"): 4096,
    ("num_attention_heads", "n_head", "n_heads"): 1 << 16,
    ("hidden_size", "n_embd", "d_model"): 1 << 20,
    ("vocab_size",): 1 << 28,
    ("n_positions", "max_position_embeddings"): 1 << 30,
}
"""Options of config.json under the names that families use, and their largest plausible value; the least is 1."""
_SAMPLE = 4096
"""Bytes of each tensor: small steps of training leave many 16-bit weights as they are, and not 2,048 of them."""
_WIDEST_WEIGHTS = 64
"""Most weights per byte of a file, above all known ways to pack them."""


def check_files(folder: Path, given: str) -> None:
    """Check that a model's files lie in its folder, can be read, and describe a model of possible size.

    Raises:
        UsageError: a file is a link out of the folder (except in the hub's cache, whose files are links to the blobs
            beside them); an index names a file outside; a file is no regular file; a description is no JSON object,
            is far too large, or has impossible sizes.
    """
    where = f"model.path = {given!r}"
    try:
        for file in _files(folder):
            _check_inside(folder, file, where)
            _check_bytes(file, where)
        descriptions = {name: _read_object(folder / name, where) for name in _DESCRIPTIONS if (folder / name).exists()}
        for index in folder.glob("*.index.json"):
            _check_index(folder, index, _read_object(index, where), where)
        if config := descriptions.get("config.json"):
            _check_sizes(config, sum(file.stat().st_size for file in folder.glob("*.safetensors")), where)
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}: {error.filename}") from None


def has_own_code(folder: Path) -> bool:
    """Whether a model's files name Python code to run, or hold code for generation."""
    return (folder / "custom_generate" / "generate.py").exists() or any(map(_names_code, folder.glob("*config.json")))


def _names_code(file: Path) -> bool:
    try:
        found = read_json(file)
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and bool(found.get("auto_map"))


def read_json(path: Path) -> Any:
    """ValueError, in one line: it holds no JSON."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("brackets in brackets, too deep to read") from None
    except ValueError as error:
        raise ValueError(f"no JSON: {str(error).splitlines()[0]}") from None


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


def _files(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.suffix in _READ:
            yield entry
    yield from sorted((folder / "additional_chat_templates").glob("*.jinja"))


def _check_inside(folder: Path, file: Path, where: str) -> None:
    root, target = Path(os.path.realpath(folder)), Path(os.path.realpath(file))
    roots = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
    if not any(target.is_relative_to(allowed) for allowed in roots):
        raise UsageError(
            f"{where}: its {file.name} is a link to {target}, outside of the folder: copy that file into it"
        )


def _check_bytes(file: Path, where: str) -> None:
    if file.exists() and not file.is_file():  # reading a pipe would wait forever
        raise UsageError(f"{where}: its {file.name} is no file")
    most = _MAX_BYTES.get(file.name)
    if most is not None and file.exists() and (size := file.stat().st_size) > most:
        raise UsageError(f"{where}: its {file.name} has {size:,} bytes, which is none: wanted at most {most:,}")


def _read_object(path: Path, where: str) -> dict[str, Any]:
    try:
        found = read_json(path)
    except ValueError as error:
        raise UsageError(f"{where}: cannot be read: {path.name}: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where}: cannot be read: {path.name}: wanted a JSON object, got a {type(found).__name__}")
    return found


def _check_index(folder: Path, index: Path, tree: Mapping[str, Any], where: str) -> None:
    places = tree.get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise UsageError(f"{where}: its {index.name} has no weight_map from weights to files")
    for name in sorted(set(places.values())):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise UsageError(f"{where}: its {index.name} names the file {name!r}, outside of the folder")
        if index.name.endswith(".safetensors.index.json"):
            if path.suffix != ".safetensors":
                raise UsageError(f"{where}: its {index.name} names the file {name!r}; wanted *.safetensors alone")
            if not (folder / name).exists():
                raise UsageError(f"{where}: its {index.name} names the file {name!r}, which is not there")
            _check_inside(folder, folder / name, where)


def _check_sizes(config: Mapping[str, Any], num_bytes: int, where: str) -> None:
    inner = config.get("text_config")
    for tree in (config, inner) if isinstance(inner, dict) else (config,):
        for names, most in _MOST.items():
            for name in names:
                _check_size(name, tree.get(name), most, where)
        _check_product(tree, num_bytes, where)


def _check_size(name: str, value: Any, most: int, where: str) -> None:
    for one in value if isinstance(value, list) else [value]:
        is_number = isinstance(one, int) and not isinstance(one, bool)
        if one is not None and not (is_number and 1 <= one <= most):
            shown = json.dumps(one)[:40]
            raise UsageError(f"{where}: its config.json has {name} = {shown}; wanted a whole number, 1 .. {most:,}")


def _check_product(tree: Mapping[str, Any], num_bytes: int, where: str) -> None:
    """Weights that the files lack would be allocated before loading fails."""
    layers, _, width, vocabulary, _ = (_first(tree, names) for names in _MOST)
    weights = width * vocabulary + layers * width * max(width, _first(tree, ("intermediate_size", "n_inner")))
    if num_bytes and weights > _WIDEST_WEIGHTS * num_bytes + 2 * _MIB:
        raise UsageError(
            f"{where}: its config.json describes a model of at least {weights:,} weights, and its files have "
            f"{num_bytes:,} bytes: use the config.json that was saved with them"
        )


def _first(tree: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return next((value for name in names if isinstance(value := tree.get(name), int)), 0)
