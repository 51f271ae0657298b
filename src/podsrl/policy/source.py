"""Where a model comes from: a folder, the hub, or this package; what can be said before anything is read."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from podsrl.errors import UsageError, nearest
from podsrl.lib.model_files import check_files

BUILTIN_PREFIX = "builtin:"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "tekken.json")


def model_folder(path: str) -> str:
    """Turn "builtin:NAME" into its folder; leave folders and hub names as they are."""
    if not path.startswith(BUILTIN_PREFIX):
        return str(Path(path).expanduser()) if path.startswith("~") else path
    folder = Path(str(resources.files("podsrl") / "models"))
    known = sorted(entry.name for entry in folder.iterdir() if (entry / "config.json").exists())
    name = path.removeprefix(BUILTIN_PREFIX)
    if name not in known:
        raise UsageError(f"model.path = {path!r}: no such built-in model.{nearest(name, known)}")
    return str(folder / name)


def check_folder(path: str, given: str) -> None:
    """Say what a folder lacks to be a model; a hub name passes.

    Args:
        path: from `model_folder`.
        given: what the user wrote.

    Raises:
        UsageError: no such folder, or one without config.json, tokenizer or *.safetensors; what `check_files` refuses.
    """
    folder = Path(path)
    if not _is_there(folder, given):
        if path.startswith((".", "/", "~")) or path.count("/") > 1:
            raise UsageError(f"model.path = {given!r}: no such folder")
        return  # a hub name
    if not (folder / "config.json").exists():
        raise UsageError(f"model.path = {given!r}: no config.json in it, wanted a model folder in Hugging Face layout")
    if not has_tokenizer(path):
        raise UsageError(
            f"model.path = {given!r}: a model without a tokenizer (none of {', '.join(_TOKENIZER_FILES)}); "
            "save one beside it with tokenizer.save_pretrained"
        )
    if not any(folder.glob("*.safetensors")):
        pickled = next(iter(folder.glob("*.bin")), None)
        cure = f"{pickled.name} is pickled and never loaded: save it anew with" if pickled else "wanted a folder of"
        raise UsageError(f"model.path = {given!r}: no *.safetensors weights in it; {cure} save_pretrained")
    check_files(folder, given)


def check_local(given: str) -> None:
    """`check_files`, where a model is a folder here and no hub name."""
    folder = Path(model_folder(given))
    if folder.is_dir():
        check_files(folder, given)


def _is_there(folder: Path, given: str) -> bool:
    try:
        (folder / "config.json").exists()  # a folder that cannot be looked into is there all the same
        return folder.exists()
    except OSError as error:
        raise UsageError(f"model.path = {given!r}: cannot be read: {error.strerror}") from None


def has_tokenizer(path: str) -> bool:
    """Whether a folder holds a tokenizer's files."""
    return any((Path(path) / name).exists() for name in _TOKENIZER_FILES)


def find_device(name: str) -> torch.device:
    """The device that `model.device` means here. UsageError: an unknown one, or one that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UsageError(f"model.device = {name!r}: wanted auto, cpu, cuda or cuda:N")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"model.device = {name!r}: torch sees {torch.cuda.device_count()} CUDA devices here; use auto or cpu"
        )
    return device


@contextlib.contextmanager
def quiet_report() -> Iterator[None]:
    """Silence transformers' table of weights that do not fit: `load_model` says it in a line."""
    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(_is_severe)  # not its level: transformers reads that, and at a higher one says more
    try:
        yield
    finally:
        logger.removeFilter(_is_severe)


def _is_severe(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING


@contextlib.contextmanager
def quiet_bars() -> Iterator[None]:
    """Silence transformers' loading bars; its warnings and errors stay."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()
