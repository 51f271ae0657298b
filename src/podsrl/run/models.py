"""Model and tokenizer from a folder, the hub, or this package; checked before the weights are read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError, nearest
from podsrl.types import Task

BUILTIN_PREFIX = "builtin:"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "tekken.json")


def model_folder(path: str) -> str:
    """Turn "builtin:NAME" into its folder; leave folders and hub names as they are."""
    if not path.startswith(BUILTIN_PREFIX):
        return path
    folder = Path(str(resources.files("podsrl") / "models"))
    known = sorted(entry.name for entry in folder.iterdir() if (entry / "config.json").exists())
    name = path.removeprefix(BUILTIN_PREFIX)
    if name not in known:
        raise UsageError(f"model.path = {path!r}: no such built-in model.{nearest(name, known)}")
    return str(folder / name)


def load_tokenizer(config: ModelConfig) -> Any:
    """The tokenizer of a model, with an end and a padding token.

    Raises:
        UsageError: the folder does not exist, holds no model or no tokenizer, or names no end token.
    """
    path = model_folder(config.path)
    _check_folder(path, config.path)
    try:
        with quiet_bars():
            AutoConfig.from_pretrained(path)
            tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"model.path = {config.path!r}: cannot be read: {_first_line(error)}") from None
    if tokenizer.eos_token_id is None:
        raise UsageError(f"model.path = {config.path!r}: its tokenizer names no end token (eos_token), so no answer would end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(config: ModelConfig) -> Any:
    """The causal language model, on its device.

    Raises:
        UsageError: the weights cannot be read, or the device is not there.
    """
    device = _device(config.device)
    try:
        with quiet_bars():
            model = AutoModelForCausalLM.from_pretrained(model_folder(config.path), dtype=getattr(torch, config.dtype))
    except (OSError, ValueError) as error:
        raise UsageError(f"model.path = {config.path!r}: weights cannot be read: {_first_line(error)}") from None
    return model.to(device)


def prompt_ids(tokenizer: Any, task: Task, max_tokens: int) -> tuple[int, ...]:
    """A task's prompt as tokens: plain text as it is, chat messages through the tokenizer's template.

    Raises:
        UsageError: it is empty or longer than `max_tokens`.
    """
    if isinstance(task.prompt, str):
        ids = tokenizer.encode(task.prompt)
    else:
        messages = [dict(message) for message in task.prompt]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    if not 0 < len(ids) <= max_tokens:
        raise UsageError(
            f"prompt of task {task.id!r} has {len(ids)} tokens, wanted 1 .. rollouts.max_prompt_tokens = {max_tokens}: "
            "raise the limit or remove the task"
        )
    return tuple(ids)


@contextlib.contextmanager
def quiet_bars() -> Iterator[None]:
    """Silence transformers' loading bars; its warnings and errors stay."""
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.enable_progress_bar()


def _check_folder(path: str, given: str) -> None:
    folder = Path(path)
    if not folder.exists():
        if path.startswith((".", "/", "~")) or path.count("/") > 1:
            raise UsageError(f"model.path = {given!r}: no such folder")
        return  # a hub name
    if not (folder / "config.json").exists():
        raise UsageError(f"model.path = {given!r}: no config.json in it, so it is not a model folder in Hugging Face layout")
    if not any((folder / name).exists() for name in _TOKENIZER_FILES):
        raise UsageError(
            f"model.path = {given!r}: a model without a tokenizer (none of {', '.join(_TOKENIZER_FILES)}); "
            "save one beside it with tokenizer.save_pretrained"
        )
    if not any(folder.glob("*.safetensors")):
        raise UsageError(f"model.path = {given!r}: no *.safetensors weights in it")


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"model.device = {name!r}: wanted auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"model.device = {name!r}: torch sees no CUDA device here; use auto or cpu")
    return device


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
