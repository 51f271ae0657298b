"""Child processes for the tests of this folder, and a look at which processes run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from podsrl_processes import blueprint_of

from podsrl.scale.generators.process import ProcessGenerator

sys.path.insert(0, str(Path(__file__).parents[2] / "generate"))  # the contract of all generators


@pytest.fixture
def new_process(tiny_model_folder: Path) -> Iterator[Callable[..., ProcessGenerator]]:
    """Starts a generator in a child process, on a model folder; all are closed after the test."""
    made: list[ProcessGenerator] = []

    def start(folder: Path = tiny_model_folder, *, timeout_seconds: float = 300.0, **changes: Any) -> ProcessGenerator:
        made.append(ProcessGenerator(blueprint_of(folder, **changes), timeout_seconds=timeout_seconds))
        return made[-1]

    yield start
    for process in made:
        process.close()
