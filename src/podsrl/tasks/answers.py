"""Read the reference answer out of a published solution: text, or None where there is none."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)  # `\{` and `\}` are characters, not groups
_BARE = re.compile(r"\s*([^$\n]+)\$|\s*(\S+)")  # to the end of the formula, else one word
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


def boxed_answer(text: str) -> str | None:
    r"""The content of the last `\boxed{…}` or `\fbox{…}`, inner braces included.

    Args:
        text: a solution in LaTeX. `\boxed 5` without braces counts as well; an empty box or one that is never closed
            does not, and the box before it is taken.

    Example:
        >>> boxed_answer(r"so $x = \boxed{3}$ or $\boxed{\frac{1}{2}}$."), boxed_answer("no box")
        ('\\frac{1}{2}', None)
    """
    for box in reversed(list(_BOX.finditer(text))):
        rest = text[box.end() :]
        inside = _braced(rest.lstrip()) if rest.lstrip().startswith("{") else _bare(rest)
        if inside is not None and inside.strip():
            return inside.strip()
    return None


def gsm8k_answer(text: str) -> str | None:
    """The number after the last `####`, without thousands separators and currency sign.

    Example:
        >>> gsm8k_answer("48 / 2 = 24\\n#### 1,234"), gsm8k_answer("1234"), gsm8k_answer("#### 12,34")
        ('1234', None, None)
    """
    _, mark, end = text.rpartition("####")
    return plain_number(end) if mark else None


def plain_number(text: str) -> str | None:
    """Write a decimal number plainly: no thousands separators, no currency sign, no zeros behind the decimal point.

    Returns:
        The number, or None where the text is anything else.

    Example:
        >>> plain_number("$1,080"), plain_number("145.0"), plain_number("-2.50"), plain_number("about 3")
        ('1080', '145', '-2.5', None)
    """
    number = text.strip().replace("$", "", 1).strip()
    if not _NUMBER.fullmatch(number):
        return None
    number = number.replace(",", "")
    return number.rstrip("0").rstrip(".") if "." in number else number


def _braced(text: str) -> str | None:
    """The content of the group that `text` begins with; None if it is never closed."""
    depth = 0
    for token in _BRACES.finditer(text):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return text[1 : token.start()]
    return None


def _bare(text: str) -> str | None:
    found = _BARE.match(text)
    return (found[1] or found[2]).strip().rstrip(".,;:") if found else None
