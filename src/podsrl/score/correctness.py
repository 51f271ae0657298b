"""Rewards that compare a final answer with the reference by mathematics, and the answers that majority votes count.

Judged by `podsrl.score.math`, which loads sympy: only worker processes do so.
"""

from __future__ import annotations

from podsrl.score.canonical import MAX_CHARACTERS, canonical, read_quantity
from podsrl.score.extract import answer_content, boxed_content, final_answer, last_number
from podsrl.types import Task


def math_correct(task: Task, completion: str) -> float:
    r"""Say whether the whole text, what stands in its `<answer>`, or its last number is the reference answer.

    Any of the three is enough, so a text may try up to three answers; `boxed_correct` takes one only.

    Returns:
        1.0 or 0.0.

    Raises:
        ValueError: the reference answer is empty.

    Source: PODS (arXiv:2504.13818), single-GPU settings. There a grader on sympy compares; here math-verify does. Ours
    compares by value where that grader is strict: it refuses `2/4` for `1/2` and `2+2` for `4`, and knows no sets,
    matrices or percent signs.

    Example:
        >>> task = Task(id="a", prompt="1/4 + 1/4 =", answer="1/2")
        >>> math_correct(task, r"<think>2/4</think> <answer>$\frac12$</answer>"), math_correct(task, "It is 0.25.")
        (1.0, 0.0)
    """
    from podsrl.score.math import is_correct, is_same

    if is_correct(completion, task.answer):
        return 1.0
    pieces = {answer_content(completion), last_number(completion)} - {None, final_answer(completion)}
    return 1.0 if any(is_same(piece, task.answer) for piece in pieces if piece is not None) else 0.0


def boxed_correct(task: Task, completion: str) -> float:
    r"""Say whether the final answer is the reference answer.

    What counts is the last `\boxed{}`, else the last `<answer>`, else the last number.

    Returns:
        1.0 or 0.0.

    Raises:
        ValueError: the reference answer is empty.

    Source: PODS (arXiv:2504.13818), multi-GPU settings.

    Example:
        >>> task = Task(id="a", prompt="1/4 + 1/4 =", answer="1/2")
        >>> boxed_correct(task, r"\boxed{0.5}"), boxed_correct(task, r"\boxed{\frac14} or 1/2")
        (1.0, 0.0)
    """
    from podsrl.score.math import is_correct

    return 1.0 if is_correct(completion, task.answer) else 0.0


def math_answer(completion: str) -> str | None:
    r"""Give the final answer of a text for a vote: in the last `<answer>`, else boxed, else the last number.

    Returns:
        Written so that most equal answers are equal strings, units left out; None where there is no answer.

    Example:
        >>> math_answer("<answer>18 dollars</answer>"), math_answer(r"\boxed{\frac{36}{2}}"), math_answer("I give up.")
        ('18', '18', None)
    """
    content = answer_content(completion)
    return _vote(boxed_content(content) or content if content is not None else final_answer(completion))


def boxed_answer(completion: str) -> str | None:
    r"""Give the final answer of a text for a vote: boxed, else in the last `<answer>`, else the last number.

    Returns:
        As `math_answer`.

    Example:
        >>> boxed_answer(r"\boxed{(1,\ 2)}"), boxed_answer("")
        ('(1,2)', None)
    """
    return _vote(final_answer(completion))


def _vote(piece: str | None) -> str | None:
    if piece is None:
        return None
    quantity = read_quantity(piece, with_words_before=True) if len(piece) <= MAX_CHARACTERS else None
    if quantity is not None:
        return f"{quantity.value}{'%' if quantity.is_percent else ''}"
    return canonical(piece) or None
