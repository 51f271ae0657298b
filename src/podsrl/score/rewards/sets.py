"""Lists, intervals and inequalities: what algebra would not see in them.

Algebra drops what stands twice in a list, takes `[3, 1]` for the point `(3, 1)`, and solves an inequality itself.
"""

from __future__ import annotations

import re
from itertools import accumulate

_END = r"(-?[0-9A-Za-z\\{}/.]{1,30})"
_BELOW = re.compile(rf"[a-z]\s*(<|\\leq?(?![A-Za-z]))\s*{_END}")
_ABOVE = re.compile(rf"[a-z]\s*(>|\\geq?(?![A-Za-z]))\s*{_END}")
_BETWEEN = re.compile(rf"{_END}\s*(<|\\leq?(?![A-Za-z]))\s*[a-z]\s*(<|\\leq?(?![A-Za-z]))\s*{_END}")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|leq|ge|geq|lt|gt)(?![A-Za-z])")
_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])|\\(?:theta|alpha|beta)(?![A-Za-z])")
_NAME = re.compile(r"^[^=]*=(?!.*=)|^[A-Za-z]\s*\\in(?![A-Za-z])")


def is_alike(text: str, reference: str) -> bool:
    r"""Whether a list has as many elements as the reference, and no other brackets; whether an inequality is solved.

    Example:
        >>> is_alike("2, 1", "1,2"), is_alike("1,2,2", "1,2"), is_alike("[3, 1]", "(3,1)")
        (True, False, False)
        >>> is_alike(r"1 < x \le 2", "(1,2]"), is_alike("2x < 10", r"(-\infty,5)")
        (True, False)
    """
    if _INEQUALITY.search(text + reference):
        return _INEQUALITY.search(reference) is not None or _is_solved(text, _NAME.sub("", reference))
    (ours, count), (theirs, wanted) = _shape(text), _shape(reference)
    return count == wanted and ("" in (ours, theirs) or ours == theirs)


def _is_solved(text: str, reference: str) -> bool:
    """Whether the one letter that the reference lacks stands alone on a side."""
    own = [letter for letter in _LETTER.findall(text) if letter not in _LETTER.findall(reference)]
    return len(own) == 1 and own[0] in map(str.strip, _INEQUALITY.split(text))


def _shape(text: str) -> tuple[str, int]:
    """The brackets around all of a list, and its number of elements."""
    text = re.sub(r"\\(?=[{}])", "", _NAME.sub("", text)).replace(" ", "")
    depths = list(accumulate((sign in "([{") - (sign in ")]}") for sign in text))
    is_within = text[:1] in ("(", "[", "{") and 0 not in depths[:-1]
    commas = sum(sign == "," and depth == is_within for sign, depth in zip(text, depths, strict=True))
    return text[0] + text[-1] if is_within else "", 1 + commas + text.count("\\pm")


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
