"""Whole completions with and without their question, and texts of real models with the labels of a reader."""

import json
import re
from pathlib import Path

from benchmarks.judges.labelled import labelled
from loops import each
from podsrl.score import is_correct
from podsrl.score.rewards.extract import find_answer

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "answer_cases" / "whole.jsonl").read_text(encoding="utf-8").splitlines()
]
LABELLED = labelled()
NEXT = "\n\nQuestion: A baker has 7 loaves and sells 2. How many are left?\nAnswer: 7 - 2 = 5\n#### 5"


@each("row", CASES, few=50)
def test_a_text_is_judged_as_a_reader_would(row: dict[str, str | bool]) -> None:
    assert is_correct(str(row["text"]), str(row["answer"]), str(row.get("question", ""))) is row["right"]


def test_of_the_labelled_texts_one_right_one_is_lost_at_most_and_no_wrong_one_paid() -> None:
    paid = [is_correct(row["text"], row["answer"], row["question"]) for row in LABELLED]
    whole = [is_paid for is_paid, row in zip(paid, LABELLED, strict=True) if row["right"] and row["finish"] == "stop"]
    assert (len(whole), sum(row["right"] for row in LABELLED)) == (47, 51) and whole.count(False) <= 1
    assert not any(is_paid for is_paid, row in zip(paid, LABELLED, strict=True) if not row["right"])


def test_no_text_is_paid_for_two_values() -> None:
    """So a text that names several numbers gains nothing by them."""
    for row in LABELLED[::4]:
        numbers = {number.rstrip(".") for number in re.findall(r"[0-9]+(?:\.[0-9]+)?", row["text"][-150:])}
        paid = {float(number) for number in numbers if is_correct(row["text"], number, row["question"])}
        assert len(paid) <= 1, (row["text"], paid)


@each(
    ("text", "piece"),
    [
        ("#### 18", "18"),
        ("#### 18\nI hope this helps!", "18"),
        ("#### 18\nSo she makes $18, which is twice 9.", "18"),
        (f"9 * 2 = 18\n#### 18{NEXT}", "18"),
        (f"9 * 2 = 18\n#### 17{NEXT}", "17"),
        ("#### 18 Question: How many?\n#### 5", "18"),
        ("#### 18\nUser: And 3 + 4?\nAssistant: \\boxed{7}", "18"),
        ("#### 17\n#### 18", "17 , 18"),
        ("#### 17\nIt is 18.\n#### 18", "17 , 18"),
        ("#### Step 1: add\nIt is 17.\n#### Answer\nIt is 18.", "It is 18."),
        ("#### 1. Add\nIt is 17.\n#### 2. Double\nIt is 34.", "It is 34."),
        ("#### 1st step\nIt is 17.", "It is 17."),
        ("\\boxed{17}\n#### 18\nDone.", "17"),
    ],
)
def test_the_first_mark_of_gsm8k_ends_a_solution(text: str, piece: str) -> None:
    assert find_answer(text) == piece
