"""Tiny models in folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

VARIANTS = [(family, is_tied) for family in ("qwen2", "qwen3", "llama") for is_tied in (True, False)]


@pytest.fixture(scope="session")
def folders(
    tmp_path_factory: pytest.TempPathFactory, make_model: Callable[..., Any], tokenizer: Any
) -> dict[tuple[str, bool], Path]:
    """Family, tied or not -> a model and its tokenizer; never changed."""
    root, found = tmp_path_factory.mktemp("families"), {}
    for family, is_tied in VARIANTS:
        folder = found[family, is_tied] = root / f"{family}-{'tied' if is_tied else 'untied'}"
        make_model(family, tie_word_embeddings=is_tied).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return found


@pytest.fixture(params=VARIANTS, ids=lambda v: f"{v[0]}-{'tied' if v[1] else 'untied'}")
def family_folder(request: pytest.FixtureRequest, folders: dict[tuple[str, bool], Path]) -> Path:
    """Each family, tied and untied, in turn."""
    return folders[request.param]


@pytest.fixture
def folder(tiny_model_folder: Path, tmp_path: Path) -> Path:
    """A copy of a model's folder, to damage."""
    return Path(shutil.copytree(tiny_model_folder, tmp_path / "model"))
