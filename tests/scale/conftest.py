"""Two and three processes for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gang import Gang  # a module of its own: what a process is started with must be found by its module's name


@pytest.fixture(scope="session")
def two() -> Iterator[Gang]:
    gang = Gang(2)
    yield gang
    gang.close()


@pytest.fixture(scope="session")
def three() -> Iterator[Gang]:
    gang = Gang(3)
    yield gang
    gang.close()
