from __future__ import annotations

import os

import pytest

from podsrl.bench.hardware import hardware_line


@pytest.mark.parametrize(("usable", "wanted"), [({0}, ", 1 core, "), ({0, 1}, ", 2 cores, ")])
def test_one_core_is_no_plural(usable: set[int], wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: usable)
    assert wanted in hardware_line()
