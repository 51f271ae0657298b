"""Reads a piece of text as one number: `196 has 9 positive divisors` is 9."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from podsrl.score.rewards.canonical import NUMBERS, Number, has_invisible, plain, read_number
from podsrl.score.rewards.words import (
    bare_calculation,
    changes,
    doubt,
    last_statement,
    names_several,
    num_words,
    only_words,
    states_only_last,
)

MAX_WORDS_BEFORE, MAX_WORDS_AFTER = 25, 10
"""Plain words that may stand around a value."""
EQUALS = re.compile(r"(?<![<>!=\\:])=(?![=>])")
_TERM = r"[A-Za-z](?:_\w|\^2)?"
NAME = re.compile(
    rf"{_TERM}(?:\s?[-+]\s?{_TERM})+|[A-Z]{{2}}\^2|\\frac\{{[A-Za-z]{{1,2}}\}}\{{[A-Za-z]{{1,2}}\}}|(?:m\s?)?\\angle\s?[A-Z]{{1,3}}"
    r"|\\overline\{[A-Z]{2}\}|(?:\\angle\s?)?\|?[A-Za-z]{1,3}(?:_\w|_\{\w+\})?\|?(?:\([^()=]{0,20}\))?|\\[a-z]+|[^0-9=\\^+*/<>]*"
)
_SCIENTIFIC = re.compile(
    r"(?<![\w.^])(-?[1-9](?:\.[0-9]{1,30})?)(?:\s*(?:\\times|\\cdot|\*)\s*10\^\{?(-?[0-9]{1,2})\}?|[eE]([-+]?[0-9]{1,2}))(?![0-9])"
)
_REPEATING = re.compile(r"(?<![\w.])([0-9]*)\.([0-9]{0,20})\\(?:overline|bar)\{?([0-9]{1,20})\}?")
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALED = re.compile(rf"(?<![\w.,])([0-9][0-9,]*(?:\.[0-9]+)?)\s+({'|'.join(_SCALES)})(?![A-Za-z])", re.IGNORECASE)
_NEGATIVE = re.compile(r"^(?:negative|minus)\s+(?=[0-9])|(?<=\bis )(?:negative|minus)\s+(?=[0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Value:
    """The one number that a piece of text states."""

    number: Number
    claims: tuple[str, ...] = ()
    """Calculations that the text equates with the number, `9 * 2` in `9 * 2 = 18`; they are not checked yet."""


def read_value(piece: str) -> Value | None:
    r"""Read a piece of text that states one number, with units and a few plain words left out.

    Of a sentence with several numbers the last counts, if a verb or `=` leads to it. None for what names several
    values, negates, bounds or doubts one, or is not computed.

    Example:
        >>> read_value("196 has 9 positive divisors").number.value, read_value("16 or 18"), read_value("9 * 2")
        (Fraction(9, 1), None, None)
    """
    text = _NEGATIVE.sub(
        "-", _SCALED.sub(_scaled, _REPEATING.sub(_repeating, _SCIENTIFIC.sub(_scientific, plain(piece))))
    )
    if not text or has_invisible(piece) or doubt(text) or names_several(text):
        return None
    *left, right = (part.strip() for part in EQUALS.split(text))
    number = _only_number(right)
    if number is None or num_words(" ".join(left)) > MAX_WORDS_BEFORE:
        return None
    claims = (re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", bare_calculation(last_statement(part))) for part in left)
    return Value(number, tuple(claim for claim in claims if not NAME.fullmatch(claim)))


def _only_number(text: str) -> Number | None:
    """The one number among plain words; the last one of a sentence."""
    found = list(NUMBERS.finditer(text))
    if not found or (len(found) > 1 and not states_only_last(text[found[-2].end() : found[-1].start()])):
        return None
    start, end = found[-1].span()
    before, after = text[:start], text[end:]
    statement = last_statement(before)
    if before[-1:].isalpha() or num_words(before) > MAX_WORDS_BEFORE or num_words(after) > MAX_WORDS_AFTER:
        return None
    if found[-1][0].startswith(("- ", "+ ")) and statement.strip(" ("):  # "Answer - 18" is no negative number
        return None
    if changes(f"{statement} {found[-1][0]}{after}") or not only_words(statement, after):
        return None
    return read_number(found[-1][0].strip())


def _scientific(match: re.Match[str]) -> str:
    return format(Decimal(match[1]).scaleb(int(match[2] or match[3])), "f")


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match[1] or "0", match[2], match[3]
    nines = 10 ** (len(fixed) + len(period)) - 10 ** len(fixed)
    return f"{int(whole) * nines + int(fixed + period) - int(fixed or '0')}/{nines}"


def _scaled(match: re.Match[str]) -> str:
    return format(Decimal(match[1].replace(",", "")).scaleb(_SCALES[match[2].lower()]), "f")
