"""docs/systems.md is what the recipes and the committed comparison say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import systems
from benchmarks.figures.systems import PARTS
from benchmarks.files import ROOT, read_all
from podsrl.compare.runs import plan
from podsrl.compare.systems import measured, read_system, system_names
from podsrl.config.load import build, read_tree
from podsrl.config.schema import CompareConfig
from podsrl.errors import UsageError

PAGE = ROOT / "docs" / "systems.md"


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


def test_the_page_has_a_section_of_every_system_and_all_its_parts() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"### {name}\n" in text and read_system(name).about.name in text for name in system_names())
    assert all(f"<!-- figures: {name} -->" in text for name in PARTS)


def test_what_pods_systems_shows_is_a_committed_result() -> None:
    shown = measured()
    assert shown in read_all("systems").values()
    assert shown is not None and {*shown["last_accuracy"]} == {*system_names()}


def test_all_arms_have_the_learning_rate_that_the_page_names(tmp_path: Path) -> None:
    config = build(CompareConfig, read_tree("systems"), "systems")
    rates = {member.config.optim.lr for member in plan(config, tmp_path)}
    assert len(rates) == 1, "READING in benchmarks/figures/systems.py says that all systems have one learning rate"
    assert f"{rates.pop():g}" in PAGE.read_text(encoding="utf-8")


def test_a_row_per_system_from_the_saved_numbers() -> None:
    saved = systems.summary(result())
    assert "runs" not in saved["arms"]["pods"] and saved["last_accuracy"] == {"grpo": 0.5, "pods": 0.625}
    head, grpo, pods = systems.rows_of(saved)
    assert grpo == ["grpo", "50.0%", "1", "1", "25%", "–", "50%", "6.2"]
    assert pods == ["pods", "62.5%", "2.00× (1.00–2.50)", "not reached", "25%", "–", "50%", "6.2"]
    files = {"systems": {"abacus": saved | {"processor": "abacus", "commit": "ab12", "date": "2026-01-02T03:04+00:00"}}}
    page = PARTS["systems-measured"](lambda name: files[name])
    assert len(head) == 8 and page.count("\n| ") == 3 and "abacus (an abacus; commit ab12, 2026-01-02)" in page


def test_a_quick_comparison_is_not_saved() -> None:
    with pytest.raises(UsageError, match="--quick"):
        systems.main(["--quick", "--save"])


def test_what_is_saved_is_shown(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, pods: Any) -> None:
    file = tmp_path / "systems.json"
    monkeypatch.setattr(systems, "IN_PACKAGE", file)
    saved = systems.summary(result())
    systems.publish(saved)
    assert json.loads(file.read_text()) == saved
    monkeypatch.setattr("podsrl.compare.systems.measured", lambda: saved)
    monkeypatch.setenv("COLUMNS", "200")
    code, said, _ = pods("systems")
    assert code == 0 and "2.00×" in said and "2 seeds" in said and "an abacus" in said
    code, said, _ = pods("systems", "pods", "--json")
    assert json.loads(said)["evidence"]["rollouts"]["saving"]["point"] == 2.0
    code, said, _ = pods("systems", "pods")
    assert "2.00× (1.00–2.50) in rollouts to 95% of grpo's best" in said
