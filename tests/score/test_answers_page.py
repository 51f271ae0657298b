"""The table of docs/answers.md is what the code says about answer_cases/page.jsonl.

PODS_WRITE_DOCS=1 python -m pytest tests/score/test_answers_page.py      writes the table anew
"""

import json
import os
from pathlib import Path

from podsrl.score import REWARDS
from podsrl.types import Task

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "answers.md"
CASES = Path(__file__).parent / "answer_cases" / "page.jsonl"
COLUMNS = ("math_correct", "any_correct", "boxed_correct", "answer_format", "think_format", "strict_format")
START, END = "<!-- table: start -->\n", "<!-- table: end -->\n"


def code(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("\n", "⏎").replace("\u200b", "\\u200b")
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


def table() -> str:
    lines = [
        "| completion | reference | " + " | ".join(f"`{name}`" for name in COLUMNS) + " |",
        "|---|---|" + "--:|" * len(COLUMNS),
    ]
    for line in CASES.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        task = Task(
            id="a", prompt=row.get("question", "How many dollars, eggs or positive divisors?"), answer=row["answer"]
        )
        values = [f"{REWARDS[name](task, row['text']):g}" for name in COLUMNS]  # type: ignore[call-arg, arg-type]
        lines.append(f"| {code(row['text'])} | {code(row['answer'])} | {' | '.join(values)} |")
    return "\n".join(lines) + "\n"


def test_the_page_shows_what_the_code_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(START)
    old, after = rest.split(END)
    new = table()
    if os.environ.get("PODS_WRITE_DOCS"):
        PAGE.write_text(f"{before}{START}{new}{END}{after}", encoding="utf-8")
        old = new
    assert new == old, "docs/answers.md differs from the code; write its table anew with PODS_WRITE_DOCS=1"
    assert len(new.splitlines()) - 2 >= 60
