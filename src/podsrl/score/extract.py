r"""Finds the final answer in a text: in the last `\boxed{}`, in the last `<answer>` tag, or the last number.

Goes in: a completion. Comes out: the piece that is judged, always one: a text that lists many answers offers only its
last. Every search is linear in the text's length.
"""

from __future__ import annotations

import re

_ANSWER_OPEN, _ANSWER_CLOSE = "<answer>", "</answer>"
NUMBER = r"(?:(?:\d{1,3}(?:,\d{3}){1,6}(?!,?\d)|\d+)(?:\.\d+)?|\.\d+)"
"""A number without sign: 7, 1,234, 0.5, .5. The bound on its groups keeps the search linear."""
_SIGN = r"(?:(?<![\w)\]}])[-−])?"
_LATEX_FRACTION = r"\\[dt]?frac\s?(?:\d\s?\d|\{\s?-?\d+\s?\}\s?\{\s?-?\d+\s?\})"
_NUMBERS = re.compile(
    rf"(?<![_^]){_SIGN}\\?\$?{_SIGN}(?:{_LATEX_FRACTION}|{NUMBER}(?:\s?/\s?\d+|\s?{_LATEX_FRACTION}|\s\d+/\d+)?)(?:\s?\\?%)?"
)
_TAIL = 200
"""Characters at the end that nearly always hold two numbers, so that a long text is seldom read as a whole."""
_FIRST_TOKEN = re.compile(rf"-?{NUMBER}|\\?[A-Za-z]+|\S")


def boxed_content(text: str) -> str | None:
    r"""Give what stands in the last `\boxed{…}` or `\fbox{…}`, braces balanced.

    Args:
        text: of any length. `\boxed 7` counts as `\boxed{7}`.

    Returns:
        The content, stripped; None where there is no box, or the last one is not closed.

    Example:
        >>> boxed_content(r"So $x = \boxed{1}$, no: $\boxed{\frac{3}{4}}$.")
        '\\frac{3}{4}'
    """
    boxes = text.rfind("\\boxed"), text.rfind("\\fbox")
    if max(boxes) < 0:
        return None
    rest = text[max(boxes) + (6 if boxes[0] > boxes[1] else 5) :].lstrip()
    if not rest.startswith("{"):
        token = _FIRST_TOKEN.match(rest)
        return token[0] if token else None
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", rest, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0 and brace[0] == "}":
            return rest[1 : brace.start()].strip()
    return None


def answer_content(text: str) -> str | None:
    """Give what stands in the last `<answer>…</answer>`.

    Returns:
        The content, stripped; None where no such pair is closed.

    Example:
        >>> answer_content("<think>5 or 6?</think> <answer> 6 </answer>")
        '6'
    """
    end = text.rfind(_ANSWER_CLOSE)
    start = text.rfind(_ANSWER_OPEN, 0, end) if end >= 0 else -1
    return text[start + len(_ANSWER_OPEN) : end].strip() if start >= 0 else None


def numbers_in(text: str) -> list[str]:
    r"""Give every number of a text as it is written: sign, dollar, percent and fraction included.

    A number in an exponent or an index (`cm^2`, `x_1`) is none.

    Example:
        >>> numbers_in(r"From -3 to $1,234.50, cm^2, \frac{1}{2} or 3/4 or 50\%")
        ['-3', '$1,234.50', '\\frac{1}{2}', '3/4', '50\\%']
    """
    return _NUMBERS.findall(text)


def last_number(text: str) -> str | None:
    """Give the last number of a text, as `numbers_in` does.

    Example:
        >>> last_number("She pays 3 * 6 = $18.")
        '$18'
    """
    numbers = numbers_in(text[-_TAIL:])
    if len(numbers) < 2:  # the only one may be cut where the tail begins
        numbers = numbers_in(text)
    return numbers[-1] if numbers else None


def final_answer(text: str) -> str | None:
    r"""Give the one piece of a text that counts: boxed, else in the `<answer>` tag, else the last number.

    Example:
        >>> final_answer(r"<answer>\boxed{8} apples</answer>"), final_answer("<answer>7</answer>"), final_answer("9.")
        ('8', '7', '9')
    """
    for find in (boxed_content, answer_content, last_number):
        if (piece := find(text)) is not None:
            return piece
    return None
