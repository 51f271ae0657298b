"""Two and three processes for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gang import Gang  # a module of its own: what a process is started with must be found by its module's name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for them is slow: their start takes seconds, which nobody waits for before the end."""
    for item in items:
        if {"two", "three"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


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
