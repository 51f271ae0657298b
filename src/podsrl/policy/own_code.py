"""Python code that comes with a model: it runs only where the user says so, and then that is said."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from podsrl.config.schema import ModelConfig
from podsrl.lib.model_files import has_own_code
from podsrl.policy.source import model_folder


def code_options(config: ModelConfig) -> dict[str, Any]:
    """What every loader of transformers is told; without it, it would ask on the terminal and take a "y" for a yes.

    Warns where `model.trust_remote_code` is on: that code runs, or that there is none.
    """
    if config.trust_remote_code:
        warnings.warn(_said(config), stacklevel=1)  # here, so that several loaders say it once
    return {"trust_remote_code": config.trust_remote_code}


def _said(config: ModelConfig) -> str:
    folder = Path(model_folder(config.path))
    start = f"model.trust_remote_code = true: Python code that came with {config.path!r}"
    if not folder.is_dir():
        return f"{start} runs in this process, if it has any"
    if has_own_code(folder):
        return f"{start} runs in this process"
    return f"model.trust_remote_code = true changes nothing: {config.path!r} has no Python code of its own"
