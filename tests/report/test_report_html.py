"""The page: whole, self-contained, and blind to what a model wrote."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.lib.stages import OTHER, SHOWN_STAGES
from podsrl.report.figures.bars import stage_figure
from podsrl.report.figures.svg import inline_svg
from podsrl.report.html import write_report
from podsrl.report.page import with_code
from run_folders import group_line, rollout_entry, write_comparison, write_run

EVIL = "<script>alert(1)</script>\"'><img src=http://evil.example/x onerror=alert(2)>]]>--><svg onload=a()>"
NOTHING: dict[str, Any] = {"steps": [], "evaluations": [], "groups": []}
VOID = {"meta", "input", "br", "img", "link", "hr", "path", "use", "rect"}


class _Tags(HTMLParser):
    """Every tag with its attributes, all text, and whether tags close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def _page(folders: list[Path], out: Path, **options: Any) -> str:
    assert write_report(folders, out, **options) == out
    return out.read_text(encoding="utf-8")


def _loads(tags: _Tags) -> list[str]:
    """Everything in a page that makes a browser fetch something."""
    loading = {"src", "srcset", "href", "xlink:href", "data", "action", "formaction", "poster", "background", "ping"}
    found = [
        f"{tag} {name}={value}"
        for tag, attributes in tags.tags
        for name, value in attributes.items()
        if name in loading and not str(value).startswith("#")
    ]
    found += [f"{tag} {name}" for tag, attributes in tags.tags for name in attributes if name.startswith("on")]
    styles = [str(attributes.get("style") or "") for _, attributes in tags.tags]
    return found + [style for style in styles if "url(" in style.replace("url(#", "") or "@import" in style]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("one") / "my-run")


@pytest.fixture(scope="module")
def run_page(run_folder: Path) -> str:
    return _page([run_folder], run_folder.parent / "report.html")


@pytest.fixture(scope="module")
def both_page(tmp_path_factory: pytest.TempPathFactory, run_folder: Path) -> str:
    """A run and a comparison in one page."""
    folder = tmp_path_factory.mktemp("both")
    return _page([run_folder, write_comparison(folder / "cmp")], folder / "report.html")


@pytest.fixture(scope="module")
def evil_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Hostile text in every place that a model, a data set, a config or a folder's name can reach."""
    folder = tmp_path_factory.mktemp("evil")
    reasons = {"invalid_reason": EVIL, "finish_reason": EVIL, "drop_reason": EVIL}
    rollout = rollout_entry(0, 1.0, text=EVIL, parts={EVIL: 1.0}, **reasons)
    group = group_line(1, group=EVIL, task={"id": EVIL, "prompt": EVIL, "answer": EVIL}, rollouts=[rollout])
    config = f"seed = 1\n[model]\npath = {json.dumps(EVIL)}\n[select]\nrule = {json.dumps(EVIL)}\n"
    run = write_run(folder / EVIL.replace("/", "|"), groups=[group], config=config)
    arms = {"slow": "</text><script>", "fast": '"><img src=x>$\\frac{$'}
    return _page([run, write_comparison(folder / "cmp", hardware=EVIL, **arms)], folder / "report.html")


def _words(page: str) -> str:
    return " ".join(" ".join(_Tags(page).text).split())


def test_the_page_says_who_made_the_run_and_shows_a_question_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    chat = {"id": "line-118", "prompt": "system: Be brief.\nuser: What is\n6 times 7?", "answer": "42"}
    run = write_run(tmp_path / "run", groups=[group_line(1, task=chat)])
    starts = [
        {
            "command": f"pods train --stop.steps={steps}",
            "date": f"2026-01-0{day}T08:00:00+00:00",
            "commit": "0123456789",
            "version": "0.1.0",
            "hardware": "a laptop",
        }
        for steps, day in ((2, 1), (4, 2))
    ]
    (run / "starts.jsonl").write_text("\n".join(map(json.dumps, starts)) + '\n{"comm')
    log = run / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "eval/accuracy" in line:
            always = [{"prompt": f"{i}?", "answer": "0", "text": "0", "is_correct": True} for i in range(3)]
            text = f"said at {line['step']}"
            learned = {"prompt": "6 · 7?", "answer": "42", "text": text, "is_correct": line["step"] > 1}
            line["eval/examples"] = [*always, learned]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = _words(_page([run], tmp_path / "report.html"))
    assert "pods train --stop.steps=2 2026-01-01 08:00:00 UTC, resumed 1×, last 2026-01-02 08:00:00 UTC" in words
    assert "commit 0123456789" in words
    assert "What is 6 times 7?" in words and "line-118" not in words
    first = "before step 1 after step 2 6 · 7? 42 wrong said at 0 ✓ correct said at 2 0? 0"
    assert first in words and "said at 1" not in words and " 1? 0 " in words and " 2? 0 " not in words
    assert "4 questions are recorded, with one answer each: 1 became correct, 0 became wrong" in words


def test_the_page_of_a_run_says_what_was_measured(run_page: str) -> None:
    tags, words = _Tags(run_page), _words(run_page)
    assert not tags.open
    for fact in ("my-run", "4 → 2", "10.0 % → 50.0 %", "builtin:arithmetic", "max_variance", "grpo", "3 s"):
        assert fact in words
    assert "50.0 % of generated tokens trained" in words
    assert "80 (50.0 %) 60 (37.5 %) 20 (12.5 %)" in words
    assert "▲ 25.0 %" in words
    assert len(tags.all("svg")) == 11


def test_every_recorded_rollout_is_shown_best_first_with_its_fate(run_page: str) -> None:
    table = run_page[run_page.index('<table class="rollouts">') :]
    rows = re.findall(r'<tr class="(kept|dropped)">(.*?)</tr>', table, flags=re.DOTALL)
    cells = [(fate, " ".join(re.sub(r"<[^>]*>", " ", row).split())) for fate, row in rows]
    assert cells == [
        ("kept", "2 ✓ 1 correct 1 +0.71 kept 12 text 2"),
        ("dropped", "3 0.1 correct 0.1 – dropped: not selected 13 text 3"),
        ("kept", "0 0 correct 0 -0.71 kept 10 text 0"),
        ("dropped", "1 – correct – – dropped: invalid correct raised ValueError 11 cut text 1"),
    ]


def test_a_group_is_marked_beside_its_question(tmp_path: Path) -> None:
    """A long question is cut where it stands, and neither its run nor its marks with it."""
    long = {"id": "1", "prompt": "How many? " * 40, "answer": "1"}
    group = group_line(1, task=long, rollouts=[rollout_entry(number, 0.0) for number in range(2)])
    runs = [write_run(tmp_path / name, groups=[group]) for name in ("one", "two")]
    page = _page(runs, tmp_path / "report.html")
    [task, _] = re.findall(r'<span class="task" title="1">(.*?)</span>\n<span class="strip', page)
    parts = re.findall(r"<span[^>]*>(.*?)</span>", task)
    assert parts[0].startswith("How many?") and parts[0].endswith("…") and parts[1:] == ["· one", "no signal"]


def test_code_in_advice_is_code_and_the_rest_is_text() -> None:
    assert with_code("see `pods check-reward`, or <b>") == "see <code>pods check-reward</code>, or &lt;b&gt;"


def test_what_a_model_wrote_stays_text_everywhere(evil_page: str) -> None:
    tags = _Tags(evil_page)
    assert len(tags.all("script")) == 1
    assert tags.all("img") == []
    assert _loads(tags) == []
    assert not tags.open
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in evil_page
    # Model, rule, task, prompt, answer, part, three reasons, text: ten places, and the comparison's hardware.
    assert "".join(tags.text).count(EVIL) >= 11


def test_the_page_loads_nothing(both_page: str) -> None:
    tags = _Tags(both_page)
    assert _loads(tags) == []
    assert tags.all("link") == tags.all("iframe") == tags.all("img") == []
    assert "http:" not in both_page
    assert "https:" not in both_page
    assert "@import" not in both_page
    assert "url(" not in both_page.replace("url(#", "")


def test_only_the_pages_own_script_may_run(run_page: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", run_page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [str(a["content"]) for a in _Tags(run_page).all("meta") if "http-equiv" in a]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_groups_open_without_script_and_filters_stay_hidden(run_page: str) -> None:
    tags = _Tags(run_page)
    (group,) = tags.all("details")
    assert (group["data-run"], group["data-signal"]) == ("my-run", "yes")
    assert "hidden" not in group
    assert [a for a in tags.all("div") if a.get("id") == "filters"] == [{"id": "filters", "hidden": None}]


def test_ids_are_unique_and_every_reference_has_its_target(both_page: str) -> None:
    tags = _Tags(both_page)
    ids = [str(attributes["id"]) for _, attributes in tags.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    references = [str(a["href"])[1:] for _, a in tags.tags if str(a.get("href") or "").startswith("#")]
    references += re.findall(r"url\(#([^)]*)\)", both_page)
    assert references
    assert set(references) <= set(ids)


def test_a_comparison_brings_its_table_and_runs(both_page: str) -> None:
    words = _words(both_page)
    assert "grpo (baseline) 2 1.00× 1.00–1.00 0.0 % of resamples" in words
    assert "pods 2 2.00× 1.50–2.50 12.5 % of resamples" in words
    assert "pods · seed 4" in words
    assert "a laptop, 2 cores" in words
    assert "pods reaches 99 % of grpo's best accuracy 2.00× as fast" in words


def test_the_same_runs_give_the_same_page_and_replace_the_old_one(run_folder: Path, run_page: str) -> None:
    out = run_folder.parent / "deep" / "er" / "report.html"
    out.parent.mkdir(parents=True)
    out.write_text("old")
    assert _page([run_folder], out) == run_page
    assert list(out.parent.iterdir()) == [out]


def test_runs_of_the_same_name_are_told_apart_by_the_folder_above(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / above / "seed0", **NOTHING) for above in ("a", "b")]
    page = _page(folders, tmp_path / "new" / "r.html")
    assert "<title>a/seed0, b/seed0 · podsrl report</title>" in page


def test_a_page_with_too_many_groups_says_what_it_leaves_out(tmp_path: Path) -> None:
    groups = [group_line(step) for step in range(1, 10)]
    page = _page([write_run(tmp_path / "run", **(NOTHING | {"groups": groups}))], tmp_path / "r.html", max_groups=3)
    assert re.findall(r'class="step">step (\d+)<', page) == ["1", "5", "9"]
    assert "3 of 9 recorded groups" in page


def test_a_run_of_nothing_still_has_a_page(tmp_path: Path) -> None:
    words = _words(_page([write_run(tmp_path / "run", **NOTHING, config="", tail='{"st')], tmp_path / "r.html"))
    assert "No groups were recorded" in words
    assert "Unreadable lines, as a kill leaves them, were skipped: 1 of run." in words
    assert "– → –" in words


def test_half_a_surrogate_pair_does_not_stop_the_page(tmp_path: Path) -> None:
    groups = [group_line(1, rollouts=[rollout_entry(0, 1.0, text="a\ud83db")])]
    page = _page([write_run(tmp_path / "run", **(NOTHING | {"groups": groups}))], tmp_path / "r.html")
    assert r"a\ud83db" in page


def test_usage_errors_name_what_was_given(tmp_path: Path, run_folder: Path) -> None:
    out = tmp_path / "r.html"
    with pytest.raises(UsageError, match="runs is empty"):
        write_report([], out)
    with pytest.raises(UsageError, match="run is given twice"):
        write_report([run_folder, run_folder / "."], out)
    with pytest.raises(UsageError, match="is a folder; give the file to write"):
        write_report([run_folder], tmp_path)
    with pytest.raises(UsageError, match="max_groups = 0"):
        write_report([run_folder], out, max_groups=0)
    with pytest.raises(UsageError, match="nothing is not a folder"):
        write_report([tmp_path / "nothing"], out)
    assert not out.exists()


def test_a_drawing_is_one_element_in_the_pages_colours() -> None:
    figure = stage_figure({"a": dict.fromkeys((*SHOWN_STAGES, OTHER), 1.0)})
    drawing = str(inline_svg(figure, "x", 'say "<5" \\1'))
    assert drawing.startswith('<svg class="plot" role="img" aria-label="say &quot;&lt;5&quot; \\1" viewBox="')
    assert "var(--ink)" in drawing
    assert "#1f2328" not in drawing
    assert "<style" not in drawing
    assert "<!--" not in drawing
