"""What recipes and `pods systems` say of measurements is a committed result, and the arms of one are comparable."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.files import ROOT, read_all
from podsrl.compare.runs import plan
from podsrl.compare.systems import measured, read_system, system_names
from podsrl.config.load import build, read_tree
from podsrl.config.schema import CompareConfig

FIGURE = re.compile(r"\d+\.\d+–\d+\.\d+|\d+\.\d+|\d+ %")


def test_what_pods_systems_shows_is_a_committed_result_of_systems_that_are_there() -> None:
    shown = measured()
    assert shown in read_all("systems").values()
    assert shown is not None and {*shown["last_accuracy"]} <= {*system_names()}


def test_all_arms_have_one_learning_rate(tmp_path: Path) -> None:
    config = build(CompareConfig, read_tree("systems"), "systems")
    rates = {member.config.optim.lr for member in plan(config, tmp_path)}
    assert len(rates) == 1, "READING in benchmarks/figures/systems.py says that all systems have one learning rate"


def test_what_was_seen_of_a_system_is_a_figure_of_a_page() -> None:
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name != "systems.md"]
    written = {figure for page in pages for figure in FIGURE.findall(page.read_text(encoding="utf-8"))}
    seen = {name: {*FIGURE.findall(read_system(name).about.seen)} for name in system_names()}
    assert len(seen["dars_b"]) == 4, "the pattern finds ratios and intervals"
    assert {name: figures - written for name, figures in seen.items() if figures - written} == {}
