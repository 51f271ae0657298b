r"""The rule for answers: when the answer of a completion is right (docs/rewards.md).

`find_answer` (extract.py) takes one piece of the text by a fixed order, never the best of several; `read_value`
(reading.py) reads it as one number; expressions.py compares what is none. Algebra loads sympy and is used only for what
is no plain number; only worker processes call it.
"""

from __future__ import annotations

import re

from podsrl.score.rewards.canonical import MAX_CHARACTERS, NUMBERS, Number, canonical, has_invisible, plain, read_number
from podsrl.score.rewards.copied import is_copied, without_words
from podsrl.score.rewards.expressions import Reference, are_true, is_close, is_same_expression, reference_of
from podsrl.score.rewards.extract import find_answer
from podsrl.score.rewards.reading import EQUALS, Value, last_statement, read_value
from podsrl.types import Task

_ASKS_PERCENT = re.compile(r"(?<![0-9])(?<![0-9][\s\\])(?<![0-9]\s\\)(?:percent|%)", re.IGNORECASE)
_DOZEN = re.compile(r"[0-9]\s*dozen", re.IGNORECASE)


def math_correct(task: Task, completion: str) -> float:
    r"""Whether the one answer of a text is the reference answer: 1.0 or 0.0. ValueError: the reference is empty.

    Example:
        >>> task = Task(id="a", prompt="9 * 2 =", answer="18")
        >>> math_correct(task, "<think>17?</think> <answer>$18</answer>"), math_correct(task, "<answer>17 or 18")
        (1.0, 0.0)
    """
    reference, piece = reference_of(task.answer), find_answer(completion)
    if piece is None or has_invisible(piece):
        return 0.0
    if len(piece) > MAX_CHARACTERS or len(reference.text) > MAX_CHARACTERS:
        return float(piece.strip() == reference.text)
    is_right = is_same_expression if reference.number is None else _is_same_number
    before = completion[: max(completion.find(piece), 0)]
    return float(plain(piece) == reference.text or is_right(piece, reference, _question(task), before))


def is_correct(completion: str, answer: str, question: str = "") -> bool:
    r"""Whether a text's answer is right by `math_correct`; what is copied from the question is not.

    Example:
        >>> is_correct(r"So it is \boxed{\frac{1}{2}}.", "0.5"), is_correct("It is 17 or 18.", "18")
        (True, False)
    """
    return math_correct(Task(id="", prompt=question, answer=answer), completion) == 1.0


def voted_answer(completion: str) -> str | None:
    r"""Give the answer of a text for a majority vote, without units, so that most equal answers are equal strings.

    Example:
        >>> voted_answer("<answer>18 dollars</answer>"), voted_answer(r"\boxed{\frac{2}{4}}"), voted_answer("")
        ('18', '1/2', None)
    """
    piece = find_answer(completion)
    if piece is None or len(piece) > MAX_CHARACTERS:
        return piece
    value = read_value(piece, piece)
    if value is not None and not value.claims:
        return f"{value.number.value}{'%' if value.number.is_percent else ''}"
    return canonical(piece) or None


def _question(task: Task) -> str:
    if isinstance(task.prompt, str):
        return task.prompt
    return " ".join(str(message.get("content")) for message in task.prompt)


def _is_same_number(piece: str, reference: Reference, question: str, before: str) -> bool:
    text, exact = plain(piece), reference.number
    value = read_value(piece, question, before) if "dozen" in question or not _DOZEN.search(text) else None
    if value is None or exact is None or not _agree(value, exact, question):
        return False
    right = EQUALS.split(text)[-1]
    numbers = [(one, read_number(one.strip())) for one in NUMBERS.findall(right)]
    written = [one for one, number in numbers if number is not None and number.value == exact.value]
    written = written or [without_words(last_statement(right))]  # such as `6.02 \cdot 10^3`
    return not any(is_copied(one, without_words(reference.text), question) for one in written)


def _agree(value: Value, reference: Number, question: str) -> bool:
    number = value.number
    if number.is_percent and not reference.is_percent and not _ASKS_PERCENT.search(question):
        return False
    if number.is_fraction and number.value.denominator == 1 and not reference.is_fraction:
        return False
    return is_close(number, reference.value) and are_true(value)
