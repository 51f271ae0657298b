"""Reference answers out of published solutions; `podsrl.lib.boxed` reads boxes.

Each function gives the final answer of a solution's text, or None where there is none.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


def gsm8k_answer(text: str) -> str | None:
    """Give the number after the last `####`, without thousands separators and currency sign.

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
