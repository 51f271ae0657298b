"""A run's choice of matmul: kept in its checkpoint, and taken back on the same machine alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from podsrl.config.load import load_config
from podsrl.lib import matmul
from podsrl.lib.matmul import Choice, Rule, choose, current, is_available, use
from podsrl.run.before.matmul import describe_here, describe_matmul, restore_matmul, settle_matmul
from podsrl.run.saving.checkpoint import load_newest
from podsrl.run.step.trainer import Trainer
from podsrl.scale.processes import Processes

HERE = {"processor": "this one", "threads": "1"}
ELSEWHERE = {"processor": "another", "threads": "1"}
SLOW = Rule(few_rows=math.inf, many_rows=math.inf, update=math.inf)
FAST = Rule(few_rows=10, many_rows=20, update=30)


@pytest.fixture(autouse=True)
def has_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "is_available", lambda: True)
    monkeypatch.setattr(matmul, "_known", {})


def test_on_the_same_machine_the_checkpoints_choice_counts() -> None:
    own, stored = Choice(rule=SLOW, machine=HERE), Choice(rule=FAST, machine=HERE)
    use(own.rule)
    assert restore_matmul(own, stored.to_json()) == (stored, [])
    assert current() == FAST


def test_on_another_machine_the_own_choice_counts_and_a_warning_says_what_differs() -> None:
    own, stored = Choice(rule=SLOW, machine=HERE), Choice(rule=FAST, machine=ELSEWHERE)
    use(own.rule)
    kept, [warning] = restore_matmul(own, stored.to_json())
    assert kept == own and current() == SLOW
    assert "processor (another -> this one)" in warning and "threads" not in warning
    for nothing in (None, {}, {"rule": {"few_rows": 1}, "machine": HERE}):
        kept, [warning] = restore_matmul(own, nothing)
        assert kept == own and "no choice is stored" in warning


def test_a_model_without_float32_weights_on_a_cpu_has_no_choice() -> None:
    use(SLOW)
    assert settle_matmul("onednn", nn.Linear(2, 2).bfloat16(), Processes()) is None
    assert restore_matmul(None, Choice(rule=FAST, machine=HERE).to_json()) == (None, [])
    assert current() == SLOW
    assert "model.matmul = 'onednn' has no effect" in describe_matmul("onednn", None)
    assert "no effect" not in describe_matmul("auto", None)


def test_a_run_says_what_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.run.before.matmul.is_available", lambda: True)
    found = settle_matmul("onednn", nn.Linear(2, 2), Processes())
    assert found is not None and current() == found.rule
    described = describe_matmul("onednn", found)
    assert "oneDNN" in described and "model.matmul = 'onednn'" in described
    described = describe_matmul("auto", Choice(rule=SLOW, machine=HERE))
    assert "MKL" in described and "oneDNN" not in described and "model.matmul" not in described
    monkeypatch.setattr("podsrl.run.before.matmul.is_available", lambda: False)
    assert "x86" in describe_matmul("auto", Choice(rule=SLOW, machine=HERE))


def test_doctors_line_names_the_file_and_an_unwritable_folder_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podsrl.run.before.matmul.is_available", lambda: True)
    monkeypatch.setattr(matmul, "measure", list)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for has_file in (True, False):
        monkeypatch.setattr(matmul, "_known", {})
        assert describe_here().startswith("MKL")
        assert (str(matmul.rule_path(matmul.this_machine())) in describe_here()) == has_file
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))


@pytest.fixture
def config(tiny_model_folder: Path) -> Any:
    return load_config("pods", [f"model.path={tiny_model_folder}", "task.num_eval=16", "rollouts.max_new_tokens=8"])


@pytest.mark.skipif(not is_available(), reason="one library: nothing is chosen")
def test_a_resumed_trainer_takes_the_checkpoints_choice_even_where_the_cache_has_another(
    tmp_path: Path, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = Trainer(config)
    stored = first.save(tmp_path / "checkpoints", {})
    before = current()
    assert json.loads((stored / "state.json").read_text())["matmul"] == choose().to_json()
    other = FAST if before != FAST else SLOW
    path = matmul.rule_path(matmul.this_machine())
    path.write_text(json.dumps({"machine": matmul.this_machine(), "rule": other.to_json()}))
    monkeypatch.setattr(matmul, "_known", {})  # as a new process
    again = Trainer(config)
    assert current() == other
    checkpoint = load_newest(tmp_path / "checkpoints")
    assert checkpoint is not None
    again.load(checkpoint)
    assert again.warnings == [] and current() == before and ("oneDNN" in again.matmul) == (before != SLOW)

    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "one of another machine")
    elsewhere = Trainer(config)
    elsewhere.load(checkpoint)
    assert "ONEDNN_MAX_CPU_ISA=one of another machine" in elsewhere.warnings[0] and current() == choose().rule
    stored = elsewhere.save(tmp_path / "more", {})
    assert json.loads((stored / "state.json").read_text())["matmul"] == choose().to_json()


@pytest.mark.skipif(not is_available(), reason="one library: nothing is chosen")
def test_a_choice_that_is_insisted_on_is_resumed_anywhere_without_a_warning(
    tmp_path: Path, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> Any:
        raise AssertionError("measured")

    monkeypatch.setattr(matmul, "measure", never)
    monkeypatch.setattr(matmul, "_known", {})
    model = config.model.model_copy(update={"matmul": "onednn"})
    config = config.model_copy(update={"model": model})
    Trainer(config).save(tmp_path, {})
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    checkpoint = load_newest(tmp_path)
    assert checkpoint is not None
    again = Trainer(config)
    again.load(checkpoint)
    assert again.warnings == [] and current() == Rule(few_rows=1e6, many_rows=1e6, update=1e6)
