"""A run's choice of the library of its float32 products."""

from __future__ import annotations

import pytest
from torch import nn

from podsrl.lib.matmul import in_use, use
from podsrl.run.before.matmul import describe_matmul, settle_matmul
from podsrl.scale.processes import Processes


@pytest.fixture(autouse=True)
def has_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("podsrl.lib.matmul.is_available", "podsrl.run.before.matmul.is_available"):
        monkeypatch.setattr(name, lambda: True)


def test_a_model_without_float32_weights_on_a_cpu_has_no_choice() -> None:
    use("mkl")
    assert settle_matmul("onednn", nn.Linear(2, 2).bfloat16(), Processes()) is None
    assert in_use() == "mkl"
    assert "model.matmul = 'onednn' has no effect" in describe_matmul("onednn", None)
    assert "no effect" not in describe_matmul("auto", None)


def test_a_run_says_what_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settle_matmul("onednn", nn.Linear(2, 2), Processes()) == in_use() == "onednn"
    described = describe_matmul("onednn", "onednn")
    assert "oneDNN" in described and "model.matmul = 'onednn'" in described
    described = describe_matmul("auto", "mkl")
    assert "MKL" in described and "oneDNN" not in described and "model.matmul" not in described
    monkeypatch.setattr("podsrl.run.before.matmul.is_available", lambda: False)
    assert "x86" in describe_matmul("auto", "mkl")


def test_process_0_chooses_for_all() -> None:
    class Second(Processes):
        def broadcast(self, value: object) -> object:
            return "onednn"

    assert settle_matmul("mkl", nn.Linear(2, 2), Second()) == in_use() == "onednn"
