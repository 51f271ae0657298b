"""The page of stored completions: questions, verdicts and texts, all of it taken as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from podsrl.errors import UsageError
from podsrl.report.completions import write_completions_report
from podsrl.tools.completions import Stored, completions_writer
from podsrl.types import Task

EVIL = "<script>alert(1)</script>\"'><img src=http://evil.example/x onerror=alert(2)>"


def page(tmp_path: Path, stored: list[Stored], max_questions: int = 300) -> str:
    with completions_writer(tmp_path / "answers.jsonl") as write:
        write(stored)
    out = write_completions_report(tmp_path / "answers.jsonl", tmp_path / "new" / "a.html", max_questions=max_questions)
    return out.read_text(encoding="utf-8")


def one(question: int, sample: int, is_correct: bool | None, text: str = "text", **facts: object) -> Stored:
    task = Task(id=f"q{question}", prompt=f"What is {question}?", answer=str(question))
    return Stored(task=task, text=text, sample=sample, is_correct=is_correct, reward=float(bool(is_correct)), **facts)  # type: ignore[arg-type]


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_each_question_is_shown_with_its_completions_right_or_wrong(tmp_path: Path) -> None:
    rows = [
        one(q, s, s == 0 or q == 1, f"text {q} {s}", num_tokens=9, extracted="5") for q in range(3) for s in range(4)
    ]
    html = page(tmp_path, [*rows, one(7, 0, False, finish_reason="length", invalid_reason="it raised")])
    text = plain(html)
    assert html.count('<details class="group"') == 4 and html.count('data-signal="yes"') == 2
    assert "1 of 4 correct" in text and "4 of 4 correct" in text and "0 of 1 correct" in text
    assert all(f"text {q} {s}" in text for q in range(3) for s in range(4))
    assert "50.0 % correct, of 12 that are known" in text and "it raised" in text and "cut" in text
    assert "4 questions, 13 completions" in text


def test_completions_of_one_question_come_together_even_without_ids(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    row = '{"prompt": "%s", "completion": "x", "answer": 1}\n'
    path.write_text(row % "a?" + row % "b?" + row % "a?")
    html = write_completions_report(path, tmp_path / "a.html").read_text()
    assert html.count('<details class="group"') == 2
    assert "question 1" in plain(html) and "–" in html


def test_nothing_that_a_model_wrote_is_markup(tmp_path: Path) -> None:
    task = Task(id=EVIL, prompt=({"role": EVIL, "content": EVIL},), answer=EVIL)
    bad = Stored(task=task, text=EVIL + "\ud800", extracted=EVIL, invalid_reason=EVIL, finish_reason=EVIL)
    found: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            found.extend([tag, *(f"{name}={value}" for name, value in attributes)])

    html = page(tmp_path, [bad])
    Tags().feed(html)
    assert "img" not in found and found.count("script") == 1
    assert not any(item.startswith(("on", "src=", "href=")) for item in found)
    assert "\\ud800" in html and "default-src 'none'" in html


def test_of_many_questions_an_even_sample_is_shown_and_the_page_says_so(tmp_path: Path) -> None:
    html = page(tmp_path, [one(q, 0, True) for q in range(10)], max_questions=4)
    assert re.findall(r'class="step">(q\d)<', html) == ["q0", "q3", "q6", "q9"]
    assert "4 of 10 questions, evenly over the file" in plain(html)


def test_the_page_is_never_written_over_what_is_read(tmp_path: Path) -> None:
    page(tmp_path, [one(1, 0, True)])
    for out, cause in ((tmp_path / "answers.jsonl", "is what is read"), (tmp_path, "is a folder")):
        with pytest.raises(UsageError, match=cause):
            write_completions_report(tmp_path / "answers.jsonl", out)
