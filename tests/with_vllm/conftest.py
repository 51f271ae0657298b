"""Tests that need vLLM (`make test-vllm`): where it is not installed they are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from podsrl.errors import UnavailableError
from podsrl.generate.vllm.start import check_installed

FOLDER = Path(__file__).parent


def why_not() -> str | None:
    try:
        check_installed()
    except UnavailableError as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if FOLDER in item.path.parents and reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
