"""README and docs show what the result files give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import BENCHMARKS, choosers, mass_balance, pages
from benchmarks.everything import saving, source
from benchmarks.figures import FIGURES, PARTS, shown
from benchmarks.figures.headline import Figure, side_by_side
from benchmarks.files import RESULTS, folder_name, read_all
from benchmarks.soak import page as soak
from benchmarks.trl_accuracy import page as trl_accuracy
from benchmarks.when_pods_helps import page as when_pods_helps
from loops import each

PAGES = [page for page in pages.pages() if pages.MARK.search(page.read_text(encoding="utf-8"))]
RESULT_FILES = sorted(RESULTS.glob("*/*.json"))


def results(**values: float) -> dict[str, dict[str, Any]]:
    """A result of one number per processor."""
    return {name: {"processor": name, "x": value} for name, value in values.items()}


@each("page", PAGES, few=3)
def test_every_part_of_a_page_is_what_the_files_give(page: Path) -> None:
    wrong = [*pages.stale(page.read_text(encoding="utf-8"))]
    assert wrong == [], "`python -m benchmarks pages` writes them"


@each("file", RESULT_FILES)
def test_a_result_file_says_where_when_and_of_which_commit_it_is(file: Path) -> None:
    result = json.loads(file.read_text(encoding="utf-8"))
    assert result["name"] in BENCHMARKS and result["name"].replace("-", "_") == file.stem
    assert folder_name(result["processor"]) == file.parent.name
    assert all(result[key] for key in ("hardware", "commit", "date"))
    assert result["has_changes"] in (True, False, None)


def test_every_benchmark_that_saves_runs_in_all() -> None:
    assert {file.stem.replace("_", "-") for file in RESULT_FILES} <= {*saving()} <= {*BENCHMARKS}
    assert {name for name in BENCHMARKS if "--save" in source(name)} <= {*saving()}
    assert {figure.benchmark for figure in FIGURES.values()} <= {*saving()}


def test_every_part_is_on_a_page() -> None:
    calls = {found["name"].split()[0] for page in PAGES for found in pages.MARK.finditer(page.read_text())}
    assert calls == {*PARTS}


def test_a_saved_result_is_shown_as_on_the_pages() -> None:
    for file in RESULT_FILES:
        result = json.loads(file.read_text(encoding="utf-8"))
        assert {"choosers": choosers.table, "mass-balance": mass_balance.table}.get(result["name"], shown)(result), file


@each(("name", "page"), [("soak", soak), ("trl-accuracy", trl_accuracy), ("when-pods-helps", when_pods_helps)])
def test_a_saved_result_can_be_drawn(name: str, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PICTURE", tmp_path / f"{name}.svg")
    for result in read_all(name).values():
        page.publish(result)
        assert page.PICTURE.stat().st_size > 10_000


def test_a_page_is_written_with_what_the_files_give() -> None:
    text = "a\n\n<!-- figures: all -->\n\nold\n\n<!-- end -->\n\nb <!-- figures: one engine -->old<!-- end --> c\n"
    new = pages.filled(text, lambda name: {})
    assert (
        "old" not in new
        and new.startswith("a\n\n<!-- figures: all -->\n\n| what |")
        and new.endswith("<!-- end --> c\n")
    )
    assert "<!-- figures: one engine -->not measured yet<!-- end -->" in new
    assert [*pages.stale(text, lambda name: {})] == ["all", "one engine"] and [*pages.stale(new, lambda name: {})] == []


def test_a_line_says_where_processors_differ_in_kind() -> None:
    figures = [
        Figure(f"f{number}", name, f"thing {number}", lambda found: f"{found['x']}×", lambda found: float(found["x"]))
        for number, name in enumerate(("near", "two-sides", "far", "alone"))
    ]
    files = {
        "near": results(abacus=2.0, rule=2.5),
        "two-sides": results(abacus=0.9, rule=1.1),
        "far": results(abacus=9.3, rule=5.5),
        "alone": results(rule=3.0),
    }
    _, _, differing = side_by_side(lambda name: files[name], figures).partition("differ in kind")
    assert "near" not in differing and "alone" not in differing
    assert "`two-sides`: 0.90 on abacus, 1.10 on rule" in differing and "`far`: 9.30 on abacus" in differing
