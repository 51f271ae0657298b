"""README and docs show what the result files give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import BENCHMARKS, pages, when_pods_helps
from benchmarks.everything import saving, source
from benchmarks.figures import FIGURES, PARTS
from benchmarks.files import RESULTS, folder_name, read_all
from benchmarks.trl_accuracy import page as trl_accuracy
from loops import each

PAGES = [page for page in pages.pages() if pages.MARK.search(page.read_text(encoding="utf-8"))]
RESULT_FILES = sorted(RESULTS.glob("*/*.json"))


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


@each(("name", "page"), [("trl-accuracy", trl_accuracy), ("when-pods-helps", when_pods_helps)])
def test_a_saved_result_can_be_drawn(name: str, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PICTURE", tmp_path / f"{name}.svg")
    for result in read_all(name).values():
        page.publish(result)
        assert page.PICTURE.stat().st_size > 10_000
