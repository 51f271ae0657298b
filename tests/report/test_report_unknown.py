"""Notes on what another version wrote."""

from __future__ import annotations

import re
from pathlib import Path

from podsrl.config.load import load_config
from podsrl.report.unknown import KNOWN_METRICS, unknown_notes

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_known_metrics_are_those_of_the_page() -> None:
    parts = [part for part in PAGE.read_text().split("\n## ") if part.startswith("`metrics.jsonl`")]
    cells = [cell for part in parts for cell in re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE)]
    named = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert {name for name in named if not name.startswith(("eval/pass@", "rewards/"))} == KNOWN_METRICS


def test_a_config_of_this_version_has_no_unknown_option() -> None:
    assert unknown_notes(load_config("pods").model_dump(mode="json"), ["step", "eval/pass@64"]) == ()


def test_free_tables_of_the_user_are_no_options() -> None:
    assert unknown_notes({"task": {"rewards": {"mine:exact": 1.0}}}, []) == ()


def test_many_unknown_names_are_cut() -> None:
    (note,) = unknown_notes({"new": {"a": 1}}, [f"new/{i}" for i in range(9)])
    assert "option new" in note and "new/5" in note and "new/6" not in note and "and 3 more" in note
