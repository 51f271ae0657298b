"""Where a model comes from: a folder, the hub, or this package; and what went wrong while it was read, in one line."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from transformers.utils import logging as transformers_logging

from podsrl.config.schema import ModelConfig
from podsrl.errors import UnavailableError, UsageError, nearest, short
from podsrl.lib.model_files import check_files, has_own_code
from podsrl.lib.packaged import PREFIX, packaged_folder

BUILTIN_PREFIX = "builtin:"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "tekken.json")
_NO_HUB = (
    "no such folder here, not in the download cache, and the hub cannot be reached "
    "(no network, or HF_HUB_OFFLINE is set): connect, or give the folder of a downloaded copy"
)
_MAX_LINE = 600
"""Characters of a library's message that are shown; some messages quote whole files."""


def model_folder(path: str) -> str:
    """The folder of "builtin:NAME" or "package:NAME"; folders and hub names stay as they are.

    UsageError: no such name, none given, or a model that is not fetched yet.
    """
    if not path:
        raise UsageError(
            "model.path has to be given: a name of the hub, such as --model.path=Qwen/Qwen2.5-0.5B-Instruct, or a "
            "folder, such as --model.path=models/mine"
        )
    if path.startswith(PREFIX):
        return str(packaged_folder(path))
    if not path.startswith(BUILTIN_PREFIX):
        return str(Path(path).expanduser()) if path.startswith("~") else path
    folder = Path(str(resources.files("podsrl") / "models"))
    known = sorted(entry.name for entry in folder.iterdir() if (entry / "config.json").exists())
    name = path.removeprefix(BUILTIN_PREFIX)
    if name not in known:
        raise UsageError(f"model.path = {path!r}: no such built-in model.{nearest(name, known)}")
    return str(folder / name)


def check_folder(path: str, given: str) -> None:
    """Check that a folder has all the files of a model; a hub name passes.

    UsageError: no such folder, or one without config.json, tokenizer or *.safetensors; or links out of it.
    """
    folder = Path(path)
    if path.endswith(".gguf"):
        raise UsageError(
            f"model.path = {given!r}: a GGUF file, wanted a folder in Hugging Face layout: load it with transformers' "
            "from_pretrained(FOLDER, gguf_file=NAME), then save_pretrained, model and tokenizer"
        )
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
    """`check_files` for a model that is a local folder and no hub name."""
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
    """The torch device of `model.device` on this machine. UsageError: it is unknown or not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if (match := re.fullmatch(r"cpu|cuda(?::([0-9]{1,18}))?", name)) is None:
        raise UsageError(f"model.device = {short(name)}: wanted auto, cpu, cuda or cuda:N")
    if name != "cpu" and int(match[1] or 0) >= torch.cuda.device_count():  # a large index is no torch.device
        raise UsageError(
            f"model.device = {name!r}: torch sees {torch.cuda.device_count()} CUDA devices here; use auto or cpu"
        )
    return torch.device(name)


@contextmanager
def quiet_log(name: str) -> Iterator[None]:
    """Silence what a library's logger of this name says, except errors."""
    logger = logging.getLogger(name)
    logger.addFilter(_is_severe)  # not its level: transformers reads that, and at a higher one says more
    try:
        yield
    finally:
        logger.removeFilter(_is_severe)


def _is_severe(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING


@contextmanager
def quiet_bars() -> Iterator[None]:
    """Silence transformers' loading bars; its warnings and errors stay."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


def code_options(config: ModelConfig) -> dict[str, Any]:
    """Options for every loader of transformers about Python code that comes with a model.

    Without them transformers asks on the terminal, and a "y" runs the code. With `model.trust_remote_code` a warning
    says that such code runs, or that there is none.
    """
    if config.trust_remote_code:
        warnings.warn(_said(config), stacklevel=1)  # one place in the code, so that several loaders warn once
    return {"trust_remote_code": config.trust_remote_code}


def _said(config: ModelConfig) -> str:
    folder = Path(model_folder(config.path))
    start = f"model.trust_remote_code = true: Python code that came with {config.path!r}"
    if not folder.is_dir():
        return f"{start} runs in this process, if it has any"
    if has_own_code(folder):
        return f"{start} runs in this process"
    return f"model.trust_remote_code = true changes nothing: {config.path!r} has no Python code of its own"


def unreadable(config: ModelConfig, what: str, error: BaseException) -> UsageError:
    """An error of transformers or of the hub's client in one line; `what` could not be read: "" is the config."""
    reason = _code_reason(error) or _hub_reason(config, error) or f"{what}cannot be read: {first_line(error)}"
    kind = UnavailableError if reason == _NO_HUB else UsageError
    return kind(f"model.path = {config.path!r}: {reason}")


@contextmanager
def reading(config: ModelConfig, what: str = "") -> Iterator[None]:
    """Turn whatever the libraries raise inside into `unreadable`.

    For a damaged file they raise KeyError, RuntimeError and types of their own; a library written in Rust may panic,
    and that is no `Exception`.
    """
    try:
        yield
    except UsageError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise unreadable(config, what, error) from None


def _code_reason(error: BaseException) -> str | None:
    if not any("trust_remote_code" in str(cause) for cause in _causes(error)):
        return None
    return (
        "it wants to run Python code of its own (auto_map in its JSON files), and model.trust_remote_code is false: "
        "read that code, then set model.trust_remote_code = true, or use a model that transformers knows by itself"
    )


def first_line(error: BaseException) -> str:
    """An error of a library in one line: its type and the first line of its text (see `line_of`).

    Example:
        >>> first_line(ValueError("layer types do not fit:\\n  3 layers, 2 types\\nsee the manual"))
        'ValueError: layer types do not fit: 3 layers, 2 types'
    """
    return line_of(f"{type(error).__name__}: {str(error).strip()}")


def line_of(text: str) -> str:
    """The first line of a text, and the second where the first ends in a colon; a long line is cut.

    Example:
        >>> line_of("one:\\ntwo\\nthree")
        'one: two'
    """
    lines = [line.strip() for line in text.splitlines()] or [""]
    line = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} …"


def _hub_reason(config: ModelConfig, error: BaseException) -> str | None:
    name = config.path
    for cause in _causes(error):
        if isinstance(cause, GatedRepoError):  # before its base class, an unknown name
            return f"is gated: accept its terms at https://huggingface.co/{name}, then run `hf auth login`"
        if isinstance(cause, RevisionNotFoundError):
            return f"has no revision {config.revision!r} on the hub: give a branch, tag or commit in model.revision"
        if isinstance(cause, RepositoryNotFoundError):
            return "no such folder here, and no such model on the hub (or a private one: run `hf auth login`)"
        if isinstance(cause, EntryNotFoundError) and not isinstance(cause, LocalEntryNotFoundError):
            return f"lacks a file on the hub: {first_line(error)}"
        if isinstance(cause, LocalEntryNotFoundError | OfflineModeIsEnabled | HfHubHTTPError | ConnectionError):
            return _NO_HUB
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
