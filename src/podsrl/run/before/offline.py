"""Fail fast when the Hugging Face hub is unreachable: its client would retry each file for about half a minute."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import constants

from podsrl.config.schema import ModelConfig, TaskConfig
from podsrl.policy import model_folder

_LOCAL_TASKS = ("arithmetic", "columns", "jsonl")
_SAID_BY_USER = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
"""Environment variables with which it is for the user, or for a proxy, to say where the hub is."""


def skip_unreachable_hub(model: ModelConfig, task: TaskConfig | None = None) -> None:
    """Let the hub's clients use what they have on disk, or fail at once, while the hub's name has no address.

    Nothing is looked up where the model and the questions (None: no questions are read) are files here.
    """
    if any(os.environ.get(name) for name in _SAID_BY_USER) or not wants_hub(model, task):
        return
    constants.HF_HUB_OFFLINE = not _has_address(urlsplit(constants.ENDPOINT).hostname or "")


def wants_hub(model: ModelConfig, task: TaskConfig | None = None) -> bool:
    """Whether the model or the questions come from the hub, or from what was once loaded from it.

    Example:
        >>> wants_hub(ModelConfig(), TaskConfig()), wants_hub(ModelConfig(path="Qwen/Qwen2.5-0.5B"))
        (False, True)
    """
    if not Path(model_folder(model.path)).exists():
        return True
    if task is None or task.name in _LOCAL_TASKS or ":" in task.name:
        return False
    return not Path(task.path).exists() if task.path is not None else not os.environ.get("PODS_DATA")


def _has_address(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True
