"""Tests that need vLLM (`make test-vllm`): where it is not installed they are skipped."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
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


if why_not() is None and "VLLM_RPC_BASE_PATH" not in os.environ:  # sockets, which it leaves behind when it is killed
    os.environ["VLLM_RPC_BASE_PATH"] = tempfile.mkdtemp(prefix="pods-rpc-", dir="/tmp")
    atexit.register(shutil.rmtree, os.environ["VLLM_RPC_BASE_PATH"], ignore_errors=True)


@pytest.fixture(autouse=True)
def _files_of_killed_ones() -> Iterator[None]:
    """A vLLM that is killed leaves a file by which its processes find each other."""
    yield
    for path in Path(tempfile.gettempdir()).glob("vllm_dist_*"):
        path.unlink()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if FOLDER in item.path.parents and reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
