"""What the tests of TRL and of verifiers share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session")
def trl_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random model."""
    from trl_runs import save_model

    return save_model(tmp_path_factory.mktemp("trl") / "model")


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Put a taskset's module where Python finds it, under a name that it returns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> str:
        name = f"taskset_of_verifiers_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write
