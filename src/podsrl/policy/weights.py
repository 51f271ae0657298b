"""Model and tokenizer from a folder, the hub, or this package; checked before the weights are read."""

from __future__ import annotations

import contextlib
import re
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
        return str(Path(path).expanduser()) if path.startswith("~") else path
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
    except Exception as error:  # a damaged file makes the libraries raise KeyError, RuntimeError and types of their own
        raise UsageError(f"model.path = {config.path!r}: cannot be read: {_first_line(error)}") from None
    if tokenizer.eos_token_id is None:
        raise UsageError(f"model.path = {config.path!r}: its tokenizer names no eos_token, so no answer would end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(config: ModelConfig) -> Any:
    """The causal language model, on its device.

    Raises:
        UsageError: the weights cannot be read or are not all there, or the device is not there.
    """
    device, dtype = _device(config.device), getattr(torch, config.dtype)
    try:
        with quiet_bars():
            model, info = AutoModelForCausalLM.from_pretrained(
                model_folder(config.path), dtype=dtype, use_safetensors=True, output_loading_info=True
            )
    except Exception as error:  # as above
        raise UsageError(f"model.path = {config.path!r}: weights cannot be read: {_first_line(error)}") from None
    missing = sorted(info["missing_keys"])
    if missing:
        raise UsageError(
            f"model.path = {config.path!r}: lacks {len(missing)} of its weights ({missing[0]} …), which would be "
            "random; use complete weights, and the config.json that was saved with them"
        )
    return model.to(device)


def prompt_ids(tokenizer: Any, task: Task, max_tokens: int) -> tuple[int, ...]:
    """A task's prompt as tokens: plain text as it is, chat messages through the tokenizer's template.

    Raises:
        UsageError: it is empty or longer than `max_tokens`, or it is chat messages and the tokenizer has no template.
    """
    if isinstance(task.prompt, str):
        ids = tokenizer.encode(task.prompt)
    elif tokenizer.chat_template is None:
        raise UsageError(
            f"task {task.id!r} is asked in chat messages, but the model's tokenizer has no chat template: "
            "use a model that has one, or plain text prompts"
        )
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
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


def _check_folder(path: str, given: str) -> None:
    folder = Path(path)
    if not folder.exists():
        if path.startswith((".", "/", "~")) or path.count("/") > 1:
            raise UsageError(f"model.path = {given!r}: no such folder")
        return  # a hub name
    if not (folder / "config.json").exists():
        raise UsageError(f"model.path = {given!r}: no config.json in it, wanted a model folder in Hugging Face layout")
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
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UsageError(f"model.device = {name!r}: wanted auto, cpu, cuda or cuda:N")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"model.device = {name!r}: torch sees {torch.cuda.device_count()} CUDA devices here; use auto or cpu"
        )
    return device


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
