"""docs/systems.md is what the committed comparison says, and its arms are comparable."""

from __future__ import annotations

from pathlib import Path

from benchmarks.files import read_all
from podsrl.compare.runs import plan
from podsrl.compare.systems import measured, system_names
from podsrl.config.load import build, read_tree
from podsrl.config.schema import CompareConfig


def test_what_pods_systems_shows_is_a_committed_result_of_systems_that_are_there() -> None:
    shown = measured()
    assert shown in read_all("systems").values()
    assert shown is not None and {*shown["last_accuracy"]} <= {*system_names()}


def test_all_arms_have_one_learning_rate(tmp_path: Path) -> None:
    config = build(CompareConfig, read_tree("systems"), "systems")
    rates = {member.config.optim.lr for member in plan(config, tmp_path)}
    assert len(rates) == 1, "READING in benchmarks/figures/systems.py says that all systems have one learning rate"
