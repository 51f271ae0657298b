"""Notes on what another version wrote."""

from __future__ import annotations

from podsrl.config.load import load_config
from podsrl.report.unknown import unknown_notes


def test_a_config_of_this_version_has_no_unknown_option() -> None:
    assert unknown_notes(load_config("pods").model_dump(mode="json")) == ()


def test_free_tables_of_the_user_are_no_options() -> None:
    assert unknown_notes({"task": {"rewards": {"mine:exact": 1.0}}}) == ()


def test_many_unknown_names_are_cut() -> None:
    (note,) = unknown_notes({"seed": 1, "new": {"a": 1}} | {f"new{i}": i for i in range(8)})
    assert "options new, new0" in note and "new4" in note and "new5" not in note and "and 3 more" in note
