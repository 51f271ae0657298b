"""Each benchmark in its small form: it runs, its result is JSON with sound numbers, and it can be shown."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.everything import QUICK

RUN = {
    **dict.fromkeys(
        ("select", "update", "floor", "watch", "budgets", "choice", "closing", "when-pods-helps", "smol"), ("--quick",)
    ),
    "demo": ("--quick", "--out", "{folder}"),
    **dict.fromkeys(("trl", "trl-pods", "trl-real"), ("--quick",)),
    **{name: QUICK[name] for name in ("engine-gpu", "halves", "interval-coverage", "planner")},
    "engine": ("--quick", "--models", "s128"),
    "families": ("qwen2", "gpt2"),
}
"""Name -> its arguments. `systems`, `soak` and `kills` take minutes or have tests of their own."""


def numbers(value: Any) -> Iterator[float]:
    """All numbers of a result."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    elif isinstance(value, int | float):
        yield value


@pytest.mark.parametrize("name", RUN)
def test_a_benchmark_runs_in_its_small_form(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if name.startswith("trl"):
        pytest.importorskip("trl")
    arguments = [each.replace("{folder}", str(tmp_path / "run")) for each in RUN[name]]
    assert main([name, *arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    found = list(numbers(result))
    assert result["name"] == name and len(found) > 5 and all(map(math.isfinite, found))
