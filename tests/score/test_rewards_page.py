"""The rewards of the answer and of the form, on answer_cases/values.jsonl and on the table of docs/rewards.md."""

import json
import re
from pathlib import Path

import pytest

from loops import each
from podsrl.score import REWARDS, is_correct
from podsrl.types import Task

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^`]+)` \| (`.*`) \| (`.*`) \|$", re.MULTILINE)
CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "answer_cases" / "values.jsonl").read_text(encoding="utf-8").splitlines()
]
NAMES = ("math_correct", "any_correct", "boxed_correct", "answer_format", "think_format", "strict_format")
QUESTION = "How many dollars, eggs or positive divisors?"


@each("case", CASES)
def test_rewards_give_the_values_of_the_table(case: dict[str, object]) -> None:
    task = Task(id="a", prompt=case.get("question", QUESTION), answer=case["answer"])  # type: ignore[arg-type]
    values = [REWARDS[name](task, case["text"]) for name in NAMES]  # type: ignore[call-arg, arg-type]
    assert values == pytest.approx(case["values"])


def test_the_answers_of_the_page_are_correct_and_wrong() -> None:
    rows = ROW.findall(PAGE.partition("| reference | correct | wrong |")[2].partition("\n\n")[0])
    assert len(rows) == 6
    for reference, *both in rows:
        for texts, value in zip(both, (True, False), strict=True):
            for text in re.findall("`([^`]+)`", texts):
                assert is_correct(f"<answer>{text}</answer>", reference, QUESTION) is value, (text, reference)
