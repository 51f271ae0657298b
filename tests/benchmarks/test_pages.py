"""README and docs show what the result files give, and no other measured figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import BENCHMARKS, pages
from benchmarks.everything import saving, source
from benchmarks.figures import FIGURES, PARTS
from benchmarks.figures.headline import Figure, side_by_side
from benchmarks.files import RESULTS, folder_name
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


@each("page", pages.pages())
def test_a_mark_is_closed_and_does_not_make_a_line_of_text_html(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- figures:") == text.count("<!-- end -->") == len(pages.MARK.findall(text))
    for found in pages.MARK.finditer(text):
        starts_line = found.start() == 0 or text[found.start() - 1] == "\n"
        assert starts_line == found["text"].startswith("\n"), found["name"]


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


def test_processors_stand_side_by_side_with_a_line_where_they_differ_in_kind() -> None:
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
    shown = side_by_side(lambda name: files[name], figures)
    assert "| what | abacus | rule | benchmark |" in shown and "| thing 3 | – | 3.0× | `alone` |" in shown
    _, _, differing = shown.partition("differ in kind")
    assert "thing 0" not in differing and "thing 3" not in differing
    assert "thing 1: 0.90 on abacus, 1.10 on rule" in differing and "thing 2: 9.30 on abacus" in differing
