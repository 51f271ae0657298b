"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _modules() -> dict[str, list[str]]:
    """Room -> its modules with examples."""
    found = defaultdict(list)
    for top in (ROOT / "src" / "podsrl", ROOT / "benchmarks"):
        for file in sorted(top.rglob("*.py")):
            if ">>> " in file.read_text():
                place = file.relative_to(top)
                name = ".".join([top.name, *place.with_suffix("").parts]).removesuffix(".__init__")
                found[top.name if top.name == "benchmarks" else place.parts[0].removesuffix(".py")].append(name)
    return found


MODULES = _modules()


@pytest.mark.parametrize("room", MODULES)
def test_the_examples_are_true(room: str) -> None:
    for name in MODULES[room]:
        result = doctest.testmod(importlib.import_module(name))
        assert result.failed == 0, name


def test_rules_and_losses_have_examples() -> None:
    assert {"select", "update", "score"} <= MODULES.keys()
    assert len(MODULES["select"]) >= 4
