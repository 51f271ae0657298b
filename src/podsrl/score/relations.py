r"""Ways to write an expression's answer beside its own: inequalities for intervals, a rounding behind, a choice's text.

Goes in: a `plain` text. Comes out: the text in the reference's way; itself where it is none of these.
"""

from __future__ import annotations

import re
from fractions import Fraction

_END = r"(-?[0-9A-Za-z\\{}/.]{1,30})"
_BELOW = re.compile(rf"[a-z]\s*(<|\\leq?(?![A-Za-z]))\s*{_END}")
_ABOVE = re.compile(rf"[a-z]\s*(>|\\geq?(?![A-Za-z]))\s*{_END}")
_BETWEEN = re.compile(rf"{_END}\s*(<|\\leq?(?![A-Za-z]))\s*[a-z]\s*(<|\\leq?(?![A-Za-z]))\s*{_END}")
_ROUNDED = re.compile(r"([^=]*[^=\s])\s*\\approx\s*(-?[0-9]{1,15}(?:\.([0-9]{1,15}))?)((?:\s[A-Za-z]+)*)")
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:\(([A-Z])\)|([A-Z])(?![A-Za-z]))[).:]*(?:\s+(\S.*))?", re.IGNORECASE
)
_MARKED_CHOICE = re.compile(r"(?:(?:option|choice|answer)\s+)?(?:\([A-Z]\)|[A-Z][).:])", re.IGNORECASE)
_OTHER_CHOICE = re.compile(r"(?<![A-Za-z])[A-Z](?![A-Za-z])|\b(?:or|and)\b|[;|]")


def as_union(text: str) -> str:
    r"""Write inequalities that "or" joins as a union of intervals.

    Example:
        >>> as_union(r"x < 2 or x \ge 3"), as_union("1, 2")
        ('(-\\infty,2)\\cup[3,\\infty)', '1, 2')
    """
    parts = [_interval(part.strip()) for part in re.split(r"\bor\b", text)]
    return r"\cup".join(part for part in parts if part) if len(parts) > 1 and all(parts) else text


def _interval(text: str) -> str | None:
    if found := _BELOW.fullmatch(text):
        return rf"(-\infty,{found[2]}{_bracket(found[1], ')]')}"
    if found := _ABOVE.fullmatch(text):
        return rf"{_bracket(found[1], '([')}{found[2]},\infty)"
    if found := _BETWEEN.fullmatch(text):
        return f"{_bracket(found[2], '([')}{found[1]},{found[4]}{_bracket(found[3], ')]')}"
    return None


def _bracket(sign: str, open_and_closed: str) -> str:
    return open_and_closed[sign.startswith("\\")]


def without_rounding(text: str, exact: Fraction) -> str:
    r"""Leave out a decimal behind an approximation sign, where it is the reference's value, rounded or cut.

    Args:
        text: `5\sqrt{2} \approx 7.07`.
        exact: the reference's value, or close enough to round.

    Example:
        >>> exact = Fraction("7.0710678118654752")
        >>> without_rounding(r"5\sqrt{2} \approx 7.07 cm", exact), without_rounding(r"5\sqrt{2} \approx 8", exact)
        ('5\\sqrt{2}', '5\\sqrt{2} \\approx 8')
    """
    found = _ROUNDED.fullmatch(text)
    if found is None:
        return text
    scale = 10 ** len(found[3] or "")
    return found[1] if Fraction(found[2]) * scale in (round(exact * scale), int(exact * scale)) else text


def choice_of(text: str) -> str | None:
    """Give the letter of a choice, its own text left out.

    Returns:
        The capital letter; None where the text is no choice, or names two.

    Example:
        >>> choice_of("(C) 12"), choice_of("Option b"), choice_of("A) 5 B) 6"), choice_of("A or C"), choice_of("Cat")
        ('C', 'B', None, None, None)
    """
    found = _CHOICE.fullmatch(text)
    if found is None or (found[3] and _OTHER_CHOICE.search(found[3])):
        return None
    if found[3] and not re.match(
        r"(?:(?:option|choice|answer)\s+)?(?:\([A-Za-z]\)|[A-Za-z][).:])", text, re.IGNORECASE
    ):
        return None
    return (found[1] or found[2]).upper()
