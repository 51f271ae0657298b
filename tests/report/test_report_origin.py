"""Rollouts that were asked in another way than their group: named in the page and in the terminal, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from podsrl.report.html import render_report
from podsrl.report.picture import newest_group
from podsrl.report.read import read_run
from run_folders import group_line, write_run

EVIL = "<b>hint</b>\x1b[31m"


def groups_of(origin: str | None) -> list[dict[str, Any]]:
    line = group_line(1)
    if origin is not None:
        line["rollouts"][2]["origin"] = origin
    return [line]


def test_the_page_names_the_other_way_of_a_rollout_that_has_one(tmp_path: Path) -> None:
    pages = {
        origin: render_report([write_run(tmp_path / str(number) / "run", groups=groups_of(origin))])
        for number, origin in enumerate((None, "guide_too_long", EVIL))
    }
    assert "asked:" not in pages[None] and pages["guide_too_long"].count("asked: guide too long") == 1
    assert "asked: &lt;b&gt;hint&lt;/b&gt;" in pages[EVIL]


def test_the_terminal_names_it_too(tmp_path: Path) -> None:
    def drawn(number: int, origin: str | None) -> str:
        [group] = read_run(write_run(tmp_path / str(number), groups=groups_of(origin))).groups
        return "\n".join(line.plain for line in newest_group(group, "max_variance", 120))

    assert "asked" not in drawn(0, None)
    assert drawn(1, "examples").count(", asked: examples") == 1
    assert "\x1b" not in drawn(2, EVIL)
