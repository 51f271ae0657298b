r"""The rewards of the PODS paper (arXiv:2504.13818), as its code has them, for reproducing its settings.

Its single-GPU settings use `any_correct`, `think_format` and `tag_count`. Its multi-GPU settings, where each tag has a
line of its own, use `boxed_correct`, `strict_format` and `tag_share`. A policy can exploit all of them
(docs/rewards.md): `any_correct` pays for three guesses, `boxed_correct` for any expression that is equal by algebra
(`\max(17, 18)` for 18), and the forms for empty tags. For other training use `math_correct` and `answer_format`.

Every search is linear in the text's length.
"""

from __future__ import annotations

import re

from podsrl.lib.boxed import last_box
from podsrl.score.rewards.canonical import NUMBERS
from podsrl.score.rewards.tags import TAGS
from podsrl.types import Task

_ANSWER_OPEN, _ANSWER_CLOSE = TAGS[2:]
_MIDDLE = re.compile(r"</think>[ \n]?<answer>")
_COST_OF_A_CHARACTER = 0.01
_TAGS_ON_LINES = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
_MIDDLE_ON_LINES, _END_OF_LINES = "\n</think>\n<answer>\n", "\n</answer>"
_LAST_DIGITS = re.compile(r"[0-9.,]+")
_NO_NUMBER = "-1"
"""In the authors' code this stands for the last number of a text without numbers."""
_MAX_FULL_TEXT = 100
"""Characters of the longest line that may be an answer as a whole."""


def any_correct(task: Task, completion: str) -> float:
    r"""Whether any of three pieces is the reference answer: the whole text, its last `<answer>`, its last number.

    ValueError: the reference answer is empty. The authors compare with a grader of their own on sympy, this function
    with math-verify, which also knows sets, matrices and percent signs.

    Example:
        >>> task = Task(id="a", prompt="9 * 2 =", answer="18")
        >>> any_correct(task, "<answer>18</answer>, or 17"), any_correct(task, "<answer>17</answer>, or 18")
        (1.0, 1.0)
    """
    from podsrl.score.rewards.algebra import is_equal

    numbers = _LAST_DIGITS.findall(completion)
    pieces = [numbers[-1] if numbers else _NO_NUMBER, _last_answer(completion), *_as_a_whole(completion)]
    return float(any(is_equal(piece, task.answer) for piece in dict.fromkeys(pieces)))


def boxed_correct(task: Task, completion: str) -> float:
    r"""Whether the last `\boxed{}`, else the last `<answer>`, else the last number is the reference answer.

    ValueError: the reference answer is empty. It pays for `18%`, `not 18` and `\max(1, 18)`.

    Example:
        >>> task = Task(id="a", prompt="1/4 + 1/4 =", answer="1/2")
        >>> boxed_correct(task, r"\boxed{0.5}"), boxed_correct(task, r"\boxed{\frac14} or 1/2")
        (1.0, 0.0)
    """
    from podsrl.score.rewards.algebra import is_equal

    piece = last_box(completion)
    if piece is None and _ANSWER_CLOSE in completion.partition(_ANSWER_OPEN)[2]:
        piece = _last_answer(completion[: completion.rfind(_ANSWER_CLOSE)])
    numbers = NUMBERS.findall(completion.replace("$", "").replace("\\dfrac", "\\frac"))
    pieces = [*_as_a_whole(completion), numbers[-1] if numbers else ""] if piece is None else [piece]
    return float(any(is_equal(piece, task.answer) for piece in pieces))


def think_format(task: Task, completion: str) -> float:
    r"""How nearly the text is `<think>.*</think>[ \n]?<answer>.*</answer>`, where a dot is any character.

    Returns:
        1 for such a text alone, 0.01 less for each character outside the longest such part, at least 0; 0 without one.

    Example:
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> think_format(task, "<think>1+2</think> <answer>3</answer> Done"), think_format(task, "3")
        (0.95, 0.0)
    """
    start, end = completion.find(TAGS[0]), completion.rfind(_ANSWER_CLOSE)
    if start < 0 or end < 0 or _MIDDLE.search(completion, start + len(TAGS[0]), end) is None:
        return 0.0
    num_extra = start + len(completion) - end - len(_ANSWER_CLOSE)
    return max(0.0, 1.0 - _COST_OF_A_CHARACTER * num_extra)


def tag_count(task: Task, completion: str) -> float:
    """Give a quarter for each of the four tags that occurs exactly once, wherever it stands."""
    return sum(completion.count(tag) == 1 for tag in TAGS) / len(TAGS)


def strict_format(task: Task, completion: str) -> float:
    r"""Whether the text begins as `^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$`: 1.0 or 0.0.

    A dot is any character, and `$` also the end of a line, so that anything may follow on further lines.
    """
    middle = completion.find(_MIDDLE_ON_LINES, len(_TAGS_ON_LINES[0]))
    if not completion.startswith(_TAGS_ON_LINES[0]) or middle < 0:
        return 0.0
    rest = middle + len(_MIDDLE_ON_LINES)
    return float(completion.find(_END_OF_LINES + "\n", rest) >= 0 or completion.endswith(_END_OF_LINES, rest))


def tag_share(task: Task, completion: str) -> float:
    """Give a quarter for each of the four tags that occurs, with its line breaks, exactly once."""
    return sum(completion.count(tag) == 1 for tag in _TAGS_ON_LINES) / len(_TAGS_ON_LINES)


def _last_answer(text: str) -> str:
    """What follows the last `<answer>`, up to the next `</answer>`; without one the whole text, as published."""
    return text.rpartition(_ANSWER_OPEN)[2].partition(_ANSWER_CLOSE)[0].strip()


def _as_a_whole(text: str) -> list[str]:
    whole = text.strip()
    return [whole] if len(whole) <= _MAX_FULL_TEXT and "\n" not in whole else []
