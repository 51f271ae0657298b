r"""Writes answers in one way, so that most equal answers are equal strings, without any algebra.

Goes in: `\dfrac12`, `\$1,234.50`, `\text{(C)}`. Comes out: `1/2`, `2469/2`, `C`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from podsrl.score.extract import NUMBER, numbers_in

MAX_CHARACTERS = 1000
"""Of an answer that is looked into; a longer one is compared as it stands. No final answer is as long."""
_WRAPPERS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_INVISIBLE = re.compile(r"\\(?:left|right|displaystyle|[bB]igg?[lr]?)(?![A-Za-z])|\\!")
_SPACES = re.compile(r"\\[,;: ]|~")
_DEGREES = re.compile(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})|°|\\degree\b")
_SHORT_FRACTION = re.compile(r"\\frac\s*(\d)\s*(\d)")
_SPACED_THOUSANDS = re.compile(r"-?\d{1,3}(?: \d{3})+")
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)(?:(?P<whole>\d+)?\\frac\{{(?P<top>-?\d+)\}}\{{(?P<bottom>-?\d+)\}}"
    rf"|(?:(?P<mixed>\d+)\s(?=\d+/))?(?P<number>{NUMBER})(?:/(?P<over>\d+))?)(?P<percent>%?)"
)
_CHOICE = re.compile(r"\(([A-Za-z])\)")
_WORD = re.compile(r"([^\W\d_]+)(?:[-'’/.][^\W\d_]+)*(?:\^\{?[23]\}?|[²³])?")
_BETWEEN_WORDS = re.compile(r"[\s.,:;'’?()*]*")


@dataclass(frozen=True, slots=True)
class Number:
    """A number that is written out: `-1,234.5`, `3/4`, `50%`."""

    value: Fraction
    """Without its percent sign: 50 for 50 %."""
    is_decimal: bool
    """Written with a point, so perhaps rounded."""
    is_percent: bool


def plain(answer: str) -> str:
    r"""Take off what has no meaning: dollars, degrees, spacing commands, text wrappers, a full stop at the end.

    Example:
        >>> plain(r"$\left(1, \dfrac{1}{2}\right).$"), plain(r"90^\circ"), plain(r"\text{Evelyn }")
        ('(1, \\frac{1}{2})', '90', 'Evelyn')
    """
    text = answer.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("−", "-").replace("{,}", ",")
    text = _DEGREES.sub("", _INVISIBLE.sub("", _SPACES.sub(" ", text)))
    while text != (text := _WRAPPERS.sub(r"\1", text)):
        pass
    text = re.sub(r"\\?\$|\\[()\[\]]", "", text).replace("\\%", "%")
    return text.strip().rstrip(".,;").strip()


def read_number(answer: str) -> Number | None:
    r"""Read a text that is one written number and nothing else.

    Args:
        answer: at most `MAX_CHARACTERS` long.

    Returns:
        The exact number; None for anything else, also `2+2`, `1 2` and a division by zero.

    Example:
        >>> read_number(r"3\frac12"), read_number("x")
        (Number(value=Fraction(7, 2), is_decimal=False, is_percent=False), None)
    """
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", plain(answer))
    text = text.replace(" ", "") if _SPACED_THOUSANDS.fullmatch(text) else text
    match = _NUMBER.fullmatch(re.sub(r"\s*([/%{}]|\\frac|^[-+])\s*", r"\1", text))
    if match is None or 0 in (int(match["bottom"] or 1), int(match["over"] or 1)):
        return None
    if match["number"] is not None:
        value = Fraction(match["number"].replace(",", "")) / int(match["over"] or 1)
        if match["mixed"] is not None:
            if value >= 1:  # `2 5/3` is no way to write a number
                return None
            value += int(match["mixed"])
    else:
        value = int(match["whole"] or 0) + Fraction(int(match["top"]), int(match["bottom"]))
    is_decimal = match["number"] is not None and "." in match["number"]
    return Number(-value if match["sign"] == "-" else value, is_decimal, bool(match["percent"]))


def read_quantity(answer: str, *, with_words_before: bool) -> Number | None:
    """Read a text with one number and otherwise words, such as a unit.

    Args:
        answer: at most `MAX_CHARACTERS` long.
        with_words_before: whether words may stand before the number, too.

    Returns:
        The number; None where there are several, or anything besides words of two letters or more.

    Example:
        >>> read_quantity("18 dollars a day", with_words_before=False).value
        Fraction(18, 1)
    """
    text = plain(answer)
    numbers = numbers_in(text)
    if len(numbers) != 1:
        return None
    before, _, after = text.partition(numbers[0])
    if before.strip() and not with_words_before:
        return None
    around = f"{before} {after}"
    if not all(len(word) > 1 or word in "aAI" for word in _WORD.findall(around)):
        return None
    return read_number(numbers[0]) if _BETWEEN_WORDS.fullmatch(_WORD.sub("", around)) else None


def canonical(answer: str) -> str:
    r"""Write an answer in its one way.

    Returns:
        A number as a reduced fraction ("1/2", "12", "50%"); a choice as its letter; a word in small letters; anything
        else without white space. Equal strings are equal answers, the other way round only mostly.

    Example:
        >>> canonical(r"\$1,234.50"), canonical(r"\text{(C)}"), canonical(r"\left( 1, 2 \right)"), canonical("Evelyn.")
        ('2469/2', 'C', '(1,2)', 'evelyn')
    """
    if len(answer) > MAX_CHARACTERS:
        return answer.strip()
    number = read_number(answer)
    if number is not None:
        return f"{number.value}{'%' if number.is_percent else ''}"
    text = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", plain(answer)))
    text = _CHOICE.sub(r"\1", text) if _CHOICE.fullmatch(text) else text
    return text.lower() if len(text) > 1 and text.isalpha() else text
