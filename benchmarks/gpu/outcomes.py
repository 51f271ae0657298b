"""A plugin of pytest: each test's outcome goes into a file, and tests that have passed before are left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.paired import Finished

FILE = "PODS_OUTCOMES"
"""Environment variable: the file."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    records = Finished(Path(os.environ[FILE])).records
    done = [item for item in items if records.get(item.nodeid, {}).get("outcome") == "passed"]
    config.hook.pytest_deselected(items=done)
    items[:] = [item for item in items if item not in done]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        why = (
            report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "").rpartition("\n")[2]
        )
        Finished(Path(os.environ[FILE])).keep(
            report.nodeid, {"outcome": report.outcome, "seconds": round(report.duration, 3), "why": why}
        )
