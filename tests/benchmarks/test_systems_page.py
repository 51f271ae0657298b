"""docs/systems.md is what the recipes and the committed comparison say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import systems
from benchmarks.files import read_all
from podsrl.compare.runs import plan
from podsrl.compare.systems import measured, system_names
from podsrl.config.load import build, read_tree
from podsrl.config.schema import CompareConfig


def result(**changes: Any) -> dict[str, Any]:
    """What is saved of a comparison of two arms, by hand."""

    def spent(point: float | None) -> dict[str, Any]:
        return {"total": 90, "to_target": 45, "saving": {"point": point, "low": 1, "high": 2.5, "share_unreached": 0}}

    signal = {"zero_signal": 0.25, "all_wrong": None, "all_wrong_early": 0.5, "mixed": 0.5, "mixed_per_100": 6.25}
    whole = {
        "baseline": "grpo",
        "fraction": 0.95,
        "metric": "accuracy",
        "seconds": 40,
        "jobs": 2,
        "hardware": "an abacus",
        "arms": {arm: {"seeds": [0, 1], "runs": ["a", "b"]} for arm in ("grpo", "pods")},
        "mean_accuracy": {"grpo": [0.1, 0.5], "pods": [0.2, 0.625]},
        "costs": {
            "rollouts": {"grpo": spent(1.0), "pods": spent(2.0)},
            "steps": {"grpo": spent(1), "pods": spent(None)},
        },
        "signal": {"grpo": signal, "pods": signal},
        **{key: {} for key in systems.LEFT_OUT if key != "mean_accuracy"},
    }
    return whole | changes


def test_what_pods_systems_shows_is_a_committed_result() -> None:
    shown = measured()
    assert shown in read_all("systems").values()
    assert shown is not None and {*shown["last_accuracy"]} == {*system_names()}


def test_all_arms_have_one_learning_rate(tmp_path: Path) -> None:
    config = build(CompareConfig, read_tree("systems"), "systems")
    rates = {member.config.optim.lr for member in plan(config, tmp_path)}
    assert len(rates) == 1, "READING in benchmarks/figures/systems.py says that all systems have one learning rate"


def test_what_is_saved_is_shown(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, pods: Any) -> None:
    file = tmp_path / "systems.json"
    monkeypatch.setattr(systems, "IN_PACKAGE", file)
    saved = systems.summary(result())
    assert "runs" not in saved["arms"]["pods"] and saved["last_accuracy"] == {"grpo": 0.5, "pods": 0.625}
    systems.publish(saved)
    assert json.loads(file.read_text()) == saved
    monkeypatch.setattr("podsrl.compare.systems.measured", lambda: saved)
    assert pods("systems")[0] == 0
    code, said, _ = pods("systems", "pods", "--json")
    assert code == 0 and json.loads(said)["evidence"]["rollouts"]["saving"]["point"] == 2.0
