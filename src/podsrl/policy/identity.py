"""Digests of what a model is, so that a resume notices another one: chat template, tokenizer, config, weights."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from safetensors import SafetensorError

from podsrl.config.schema import ModelConfig
from podsrl.lib.model_files import files_digest, weight_files
from podsrl.policy.adapter_folder import ADAPTER_CONFIG, ADAPTER_WEIGHTS, base_of
from podsrl.policy.render import tools_of
from podsrl.policy.source import model_folder

WEIGHTS = "weights of model.path"
_CONFIGS = ("config.json", "generation_config.json", ADAPTER_CONFIG)
_UNREADABLE = (OSError, SafetensorError, ValueError, LookupError, AttributeError, TypeError)
"""What reading a damaged file raises."""


def tokenizer_identity(tokenizer: Any) -> dict[str, str]:
    """Name -> digest of the chat template, with the tools that it shows, and of the tokenizer.

    The template counts by its text and not by what it renders: some templates write today's date into each prompt.
    """
    template = [getattr(tokenizer, "chat_template", None), tools_of(tokenizer)]
    special = [getattr(tokenizer, "special_tokens_map", None), getattr(tokenizer, "eos_token_id", None)]
    return {"chat template": _digest(template), "tokenizer": _digest([_vocabulary(tokenizer), special])}


def model_identity(config: ModelConfig) -> dict[str, str]:
    """Name -> digest of a model's configs and of its weights (`files_digest`), of the base too where it is adapters.

    The weights alone, as "", while the hub has them and this machine has not, or where they cannot be read.
    """
    base = base_of(config)
    folders = [_folder(config)] if base is None else [_folder(base), _folder(config)]
    with suppress(*_UNREADABLE):  # loading says what is wrong with them
        there = [folder for folder in folders if folder is not None]
        configs = [file.read_text() for folder in there for name in _CONFIGS if (file := folder / name).exists()]
        weights = files_digest([file for folder in there for file in _weight_files(folder)])
        if None not in folders:
            return {"config of model.path": _digest(configs), WEIGHTS: weights}
    return {WEIGHTS: ""}


def _vocabulary(tokenizer: Any) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return sorted(tokenizer.get_vocab().items())
    text = backend.to_str()
    return text[text.index('"added_tokens"') :]  # before it stands how the last call cut and padded


def _folder(config: ModelConfig) -> Path | None:
    folder = Path(model_folder(config.path))
    if folder.is_dir():
        return folder
    with suppress(Exception):  # the hub's client has many types of errors for what it does not have here
        return Path(snapshot_download(config.path, revision=config.revision, local_files_only=True))
    return None


def _weight_files(folder: Path) -> list[Path]:
    adapters = folder / ADAPTER_WEIGHTS
    return weight_files(folder) if (folder / "config.json").exists() or not adapters.exists() else [adapters]


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, default=str).encode(), digest_size=16).hexdigest()
