"""What generators in child processes are made from, for tests and for the scripts that they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from podsrl.config.schema import ModelConfig
from podsrl.generate import Setting
from podsrl.policy import load_model, load_tokenizer
from podsrl.scale.generators.worker import Blueprint


def blueprint_of(folder: Path, *, model: Any = None, seed: int = 5, **changes: Any) -> Blueprint:
    config = ModelConfig(path=str(folder), device="cpu")
    model, tokenizer = model or load_model(config).eval(), load_tokenizer(config)
    setting = Setting(load_model=lambda: None, folder=str(folder), seed=seed)
    threads = torch.get_num_threads()
    given = {"generator": "engine", "options": {}, "threads": threads, "num_workers_here": 1, **changes}
    return Blueprint.of(model, tokenizer, setting, config=config, **given)
