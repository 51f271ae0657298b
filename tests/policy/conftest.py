"""Tiny models in folders, and policies made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from podsrl.config.schema import RunConfig
from podsrl.policy import Policy, load_policy, load_tokenizer

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
def policy_of() -> Callable[..., Policy]:
    """Folder, lora options, other model options -> a policy on the CPU."""

    def build(folder: Path, lora: dict[str, Any] | None = None, **model: Any) -> Policy:
        options = {"model": {"path": str(folder), "device": "cpu", **model}, "lora": lora}
        config = RunConfig.model_validate(options)
        return load_policy(config, load_tokenizer(config.model))

    return build


@pytest.fixture
def teach() -> Callable[[Policy], None]:
    """Move every trained weight, the same way each time, so that adapters are not 0 any more."""

    def move(policy: Policy) -> None:
        draw = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in policy.weights().values():
                weight.add_(0.2 * torch.randn(weight.shape, generator=draw))

    return move
