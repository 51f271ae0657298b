"""Small runs: their options, what their folders say, and how two of them are compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.run.saving.checkpoint import Checkpoint, load_newest
from podsrl.run.step.trainer import Trainer

SMALL = (
    *("rollouts.num_prompts=2", "rollouts.num_rollouts=8", "select.num_kept=4", "rollouts.max_new_tokens=16"),
    *("task.num_eval=4", "eval.every_seconds=0", "stop.seconds=0", "stop.steps=4", "model.matmul=mkl"),
)
EXTRA: Mapping[str, Any] = {
    "schedule": {"last_eval_step": -1, "next_eval_seconds": 0.0},
    "log_bytes": {"metrics.jsonl": 0, "groups.jsonl": 0},
}
"""What a loop adds to a trainer's own state, before its first step."""


def options(*overrides: str) -> list[str]:
    """Options of a small run; of two for the same key the later counts."""
    return list({text.partition("=")[0]: text for text in (*SMALL, *overrides)}.values())


def flags(*overrides: str) -> list[str]:
    return [f"--{text}" for text in options(*overrides)]


def config_of(*overrides: str, recipe: str = "pods") -> RunConfig:
    return load_config(recipe, options(*overrides))


def timeless(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line without what the clock and the memory say, which differ between two processes."""
    return {name: value for name, value in line.items() if not name.startswith(("seconds/", "memory/"))}


def lines_of(folder: Path, log: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / log).read_text().splitlines()]


def numbers(folder: Path) -> list[dict[str, Any]]:
    return [timeless(line) for line in lines_of(folder)]


def newest(folder: Path) -> Checkpoint:
    """Of a folder of checkpoints."""
    found = load_newest(folder)
    assert found is not None
    return found


def final_tensors(run: Path) -> dict[str, str]:
    """Digests of the files with tensors in the last checkpoint."""
    last = sorted((run / "checkpoints").glob("step-????????"))[-1]
    files = sorted(last.rglob("*.safetensors"))
    assert len(files) >= 2
    return {str(file.relative_to(last.parent)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def assert_same_weights(one: Trainer, other: Trainer) -> None:
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name
