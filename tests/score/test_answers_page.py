"""The tables of docs/answers.md are what the code says about answer_cases/page.jsonl.

PODS_WRITE_DOCS=1 python -m pytest tests/score/test_answers_page.py      writes the tables anew
"""

import json
import os
from pathlib import Path

from podsrl.score import REWARDS
from podsrl.types import Task

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "answers.md"
CASES = Path(__file__).parent / "answer_cases" / "page.jsonl"
ANSWERS = ("math_correct", "any_correct", "boxed_correct")
FORMS = ("answer_format", "think_format", "strict_format")
USUAL = ("<think>9 * 2</think> <answer>", "</answer>")
"""What most completions of the page begin and end with; the rewards of the form then give 1, 1 and 0."""
START, END = "<!-- table: start -->\n", "<!-- table: end -->\n"


def code(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("\n", "⏎").replace("\u200b", "\\u200b")
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


def tables() -> str:
    """Completions in the usual form without it and with the rewards of the answer, then all others with all rewards."""
    usual, others = [], []
    for line in CASES.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        task = Task(
            id="a", prompt=row.get("question", "How many dollars, eggs or positive divisors?"), answer=row["answer"]
        )
        text, reference = row["text"], code(row["answer"])
        values = [f"{REWARDS[name](task, text):g}" for name in (*ANSWERS, *FORMS)]  # type: ignore[call-arg, arg-type]
        if text.startswith(USUAL[0]) and text.endswith(USUAL[1]) and values[3:] == ["1", "1", "0"]:
            usual.append([code(text.removeprefix(USUAL[0]).removesuffix(USUAL[1])), reference, *values[:3]])
        else:
            others.append([code(text), reference, *values])
    both = (table("within the tags", ANSWERS, usual), table("completion", (*ANSWERS, *FORMS), others))
    return "\nWritten otherwise:\n\n".join(both)


def table(head: str, names: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [[head, "reference", *(f"`{name}`" for name in names)], ["---", "---", *["--:"] * len(names)], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def test_the_page_shows_what_the_code_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(START)
    old, after = rest.split(END)
    new = tables()
    if os.environ.get("PODS_WRITE_DOCS"):
        PAGE.write_text(f"{before}{START}{new}{END}{after}", encoding="utf-8")
        old = new
    assert new == old, "docs/answers.md differs from the code; write its tables anew with PODS_WRITE_DOCS=1"
    assert new.count("\n|") >= 40
