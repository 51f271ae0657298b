r"""What a question holds already earns nothing; the right answer in any other form does."""

import json
import os
from pathlib import Path

import pytest

from loops import each
from podsrl.lib.boxed import boxed_answer
from podsrl.score.rewards.answers import math_correct
from podsrl.tools.attack.computed import question_expressions
from podsrl.tools.attack.target import target_of
from podsrl.types import Task

COPIES = [
    ("Simplify $(1+2i)6-3i$.", "6+9i", "(1+2i)6-3i"),
    ("Simplify $(1+2i)6-3i$.", "6+9i", "6(1+2i) - 3i"),
    ("Simplify $(1+2i)6-3i$.", "6+9i", "z = (1+2i)6-3i"),
    (r"Solve \[\frac{1}{x - 5} > 0.\]", r"(5,\infty)", r"\frac{1}{x-5} > 0"),
    (r"Solve \[\frac{1}{x - 5} > 0.\]", r"(5,\infty)", r"\frac{1}{t-5} > 0"),
    (r"Solve $|x| < 3$.", "(-3,3)", "|x| < 3"),
    ("Solve $2x - 1 \\le 9$.", r"(-\infty, 5]", r"x - 5 \le 0"),
    ("Solve $x^2 - 5x - 4 \\le 10$.", r"x \in [-2,7]", r"x^2-5x-4 \leq 10"),
    (r"Compute $58_9 - 18_9$ in base $9$.", "40_9", "58_9 - 18_9"),
    (r"Reduce $\frac{28}{63}$.", r"\frac{4}{9}", "28/63"),
    (r"Reduce $\frac{28}{63}$.", r"\frac{4}{9}", r"The answer is \dfrac{28}{63} of a cup"),
    (r"Reduce $28/63$. There are 9 eggs.", r"\frac{4}{9}", "It makes 28/63 from the 9 eggs."),
    (r"Write $0.75$ as a fraction.", "3/4", ".750"),
    (r"Write $3/4$ as a decimal.", "0.75", r"\frac34"),
    (r"Write $6.02 \times 10^3$ as a whole number.", "6020", r"6.02 \cdot 10^3"),
    ("Write 100,000 as a power of 10.", "10^5", "100000"),
    ("Factor $ab+5b+2a+10$.", "(a+5)(b+2)", "ab + 5b + 2a + 10"),
    ("Factor $ab+5b+2a+10$.", "(a+5)(b+2)", "10 + 2a + 5b + ab"),
    ("Expand (q-5)(3r+6).", "3qr+6q-15r-30", "(3r+6)(q-5)"),
    ("Expand (q-5)(3r+6).", "3qr+6q-15r-30", r"1 \cdot (q-5)(3r+6) + 0"),
    ("Write $3x - y = 5$ in slope-intercept form.", "y=3x-5", "3x-y=5"),
    (r"Simplify $\sqrt{242}$.", r"11\sqrt2", r"\sqrt{242}"),
    ("Find the product \\[\\begin{pmatrix} 2 & 1 \\end{pmatrix} \\begin{pmatrix} 3 \\\\ 4 \\end{pmatrix}.\\]",
     r"\begin{pmatrix} 10 \end{pmatrix}", r"\begin{pmatrix} 2 & 1 \end{pmatrix} \begin{pmatrix} 3 \\ 4 \end{pmatrix}"),
]  # fmt: skip
RIGHT = [
    ("Simplify $(1+2i)6-3i$.", "6+9i", "9i + 6"),
    ("Simplify $(1+2i)6-3i$.", "6+9i", "(1+2i)6-3i = 6+9i"),
    (r"Solve \[\frac{1}{x - 5} > 0.\]", r"(5,\infty)", "x > 5"),
    (r"Solve \[\frac{1}{x - 5} > 0.\]", r"(5,\infty)", "5 < x"),
    (r"Solve $x + y < 5$ for $y$.", "y < 5 - x", "5 - x > y"),
    (r"Compute $58_9 - 18_9$ in base $9$.", "40_9", "40"),
    (r"Compute $58_9 - 18_9$ in base $9$.", "40_9", "x = 40_{9}"),
    (r"Reduce $\frac{28}{63}$.", r"\frac{4}{9}", "28/63 = 4/9"),
    (r"Reduce $\frac{28}{63}$.", r"\frac{4}{9}", "4/9"),
    (r"Half of the $\frac{1}{2}$ pie is left. How much?", r"\frac{1}{2}", "1/2"),
    ("Write 2.50 dollars without a zero at the end.", "2.5", "$2.50"),
    ("He had $1,250. How much has he now?", "1250", "$1,250 are left"),
    ("He sells 9 eggs for $2 each. How much does he make?", "18", "He makes $18 from the 9 eggs."),
    ("It was 7 degrees. Now?", "-7", "negative 7"),
    ("There are 1.5 million people. And 2?", "2000000", "2 million"),
    ("Factor $ab+5b+2a+10$.", "(a+5)(b+2)", "(b+2)(a+5)"),
    ("Which of $x^2+2x+1$ and $x^2$ is $(x+1)^2$?", "x^2+2x+1", "1+2x+x^2"),
    ("Find both solutions of $x^2 = 3x - 2$.", "1,2", "x = 1, x = 2"),
    ("Find both solutions of $x^2 = 3x - 2$.", "1,2", "x=2 or x=1"),
    (r"Is $x = 0$ or $x > 0$ in $(0,5)$?", r"(0,\infty)", "0 < x"),
    ("What part is gray?\n[asy] draw((0.5,0)--(1,1)); [/asy]", r"\frac{1}{2}", "0.5"),
]


def judged(question: str, answer: str, text: str) -> float:
    return math_correct(Task(id="a", prompt=question, answer=answer), rf"So it is $\boxed{{{text}}}$.")


@each(("question", "answer", "text"), COPIES, few=5)
def test_an_expression_of_the_question_is_no_answer(question: str, answer: str, text: str) -> None:
    assert judged(question, answer, text) == 0.0
    assert judged(question, answer, answer) == 1.0


@each(("question", "answer", "text"), RIGHT, few=5)
def test_what_was_worked_out_is_right_in_any_form(question: str, answer: str, text: str) -> None:
    assert judged(question, answer, text) == 1.0


@pytest.mark.skipif("PODS_DATA" not in os.environ, reason="PODS_DATA names no folder of data")
@pytest.mark.parametrize(("name", "every"), [("test", 20), ("train", 150)])
def test_no_expression_of_a_question_of_math_earns_anything(name: str, every: int) -> None:
    """`pods check-reward --attack --task math500 --num-questions 500` tries all of them."""
    lines = (Path(os.environ["PODS_DATA"]) / "math" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    num_tried = 0
    for row in map(json.loads, lines[::every]):
        answer = row.get("answer") or boxed_answer(row["solution"])
        target = target_of(Task(id="a", prompt=row["problem"], answer=answer))
        paid = [text for _, text in question_expressions(target) if judged(row["problem"], answer, text)]
        assert (paid, judged(row["problem"], answer, answer)) == ([], 1.0)
        num_tried += len(list(question_expressions(target)))
    assert num_tried > 80
