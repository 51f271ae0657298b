"""`python -m benchmarks trl-real`: both sides of an update compute the same, and a table of them by hand."""

from __future__ import annotations

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.trl.real import page


def test_a_quick_run_has_equal_losses_and_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trl")
    assert main(["trl-real", "--quick", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["updates"]) == {"short/full", "short/lora", "long/full", "long/lora"}
    for found in result["updates"].values():
        assert found["loss"]["difference"] < 1e-4 and found["loss"]["gradient_difference"] < 1e-4
        assert set(found["cpu_seconds"]) == set(found["update_bytes"]) and min(found["update_bytes"].values()) >= 0
    assert page(result).count("\n") == 5
