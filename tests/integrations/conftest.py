"""What the tests of TRL share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def trl_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random model."""
    from trl_runs import save_model

    return save_model(tmp_path_factory.mktemp("trl") / "model")
