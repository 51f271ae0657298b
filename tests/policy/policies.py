"""Policies made of folders, and weights that move."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from podsrl.config.schema import RunConfig
from podsrl.policy import Policy, load_policy, load_tokenizer

Folders = dict[tuple[str, bool], Path]
"""Family, and whether the head is tied -> a model and its tokenizer."""


def policy_of(folder: Path, lora: dict[str, Any] | None = None, **model: Any) -> Policy:
    """A policy on the CPU, with options of adapters and of the model."""
    config = RunConfig.model_validate({"model": {"path": str(folder), "device": "cpu", **model}, "lora": lora})
    return load_policy(config, load_tokenizer(config.model))


def teach(policy: Policy) -> None:
    """Move every trained weight, the same way each time, so that adapters are not 0 any more."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.weights().values():
            weight.add_(0.2 * torch.randn(weight.shape, generator=draw))


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a JSON file holds."""
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
