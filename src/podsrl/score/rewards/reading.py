"""Reads a piece of text as one number: `196 has 9 positive divisors` is 9."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from podsrl.score.rewards.canonical import NUMBERS, Number, has_invisible, plain, read_number
from podsrl.score.rewards.extract import statements
from podsrl.score.rewards.words import (
    bare_calculation,
    doubt,
    is_led,
    last_statement,
    may_follow,
    names_several,
    num_words,
    only_words,
    own_words,
    states_only_last,
)

MAX_STEPS = 12
"""Statements that may stand before the one with the answer."""
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
_PARTS = {
    "hour": (60, "minute"),
    "minute": (60, "second"),
    "day": (24, "hour"),
    "week": (7, "day"),
    "year": (12, "month"),
}
_PARTED = re.compile(rf"([0-9]+) ({'|'.join(_PARTS)})s?,? (?:and )?([0-9]+) (minute|second|hour|day|month)s?\b")
_HALVES = {"half": "1/2", "third": "1/3", "quarter": "1/4"}
_GIVEN_BEHIND = re.compile(
    r"\b(?:from|for|in|on|with|after|per)(?: (?:the|his|her|their|its|all|these|those|every)){0,2} $"
)
_AFTER_A_WORD, _BEFORE_A_WORD = re.compile(r"(?:^|[A-Za-z] )$"), re.compile(r" [A-Za-z]|$")
_MIN_WORDS = 3
"""Words of a sentence that may name the question's numbers before the one that states the answer."""


@dataclass(frozen=True, slots=True)
class Value:
    """The one number that a piece of text states."""

    number: Number
    claims: tuple[str, ...] = ()
    """Calculations that the text equates with the number, `9 * 2` in `9 * 2 = 18`; they are not checked yet."""
    steps: tuple[Value, ...] = ()
    """Equations before it, whose claims are not checked yet either."""


def read_value(piece: str, question: str = "") -> Value | None:
    r"""Read a piece of text that states one number, with units and a few plain words left out.

    Of a sentence with several numbers the last counts, if a verb or `=` leads to it. Numbers of the question may stand
    before it, and equations whose values it uses. None for what names several values, negates, bounds or doubts one, or
    is not computed.

    Args:
        question: its words may stand right beside the number.

    Example:
        >>> read_value("196 has 9 positive divisors", "How many positive divisors?").number.value, read_value("9 * 2")
        (Fraction(9, 1), None)
        >>> read_value("17 or 18"), read_value("9 * 2 = 18\nAnswer: 18").number.value
        (None, Fraction(18, 1))
    """
    if has_invisible(piece):
        return None
    text, found = plain(piece), statements(piece)
    if len(found) > 1:
        return _read_derived([*map(plain, found)], question) or _read(text, question)
    return _read(text, question) or _read(_without(text, _given(question)), question)


def _read(text: str, question: str) -> Value | None:
    """One statement."""
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    text = _PARTED.sub(functools.partial(_in_one_unit, question=question), text)
    own = own_words(question)
    if not text or doubt(text, own) or names_several(text):
        return None
    *left, right = (part.strip() for part in EQUALS.split(text))
    number = _only_number(right, own)
    if number is None or num_words(" ".join(left)) > MAX_WORDS_BEFORE:
        return None
    claims = (
        re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", bare_calculation(last_statement(part.rpartition("because ")[2])))
        for part in left
    )
    return Value(number, tuple(claim for claim in claims if not NAME.fullmatch(claim)))


def _read_derived(found: list[str], question: str) -> Value | None:
    """The last of several statements, where the question or an equation accounts for every other number."""
    *before, last = found
    given = _given(question)
    value = _read(last, question) or _read(_without(last, given), question)
    if value is None or len(before) > MAX_STEPS:
        return None
    known, steps, used = {*given, value.number.value}, [], _numbers(last)
    for text in reversed(before):
        step = _read(text, question) if "=" in text else None
        if step is not None and step.claims and step.number.value in used:
            steps.append(step)
            known.add(step.number.value)
        elif not _names_only(text, known, value.number.value):
            return None
        used |= _numbers(text)
    return replace(value, steps=tuple(steps))


def _names_only(text: str, known: set[Fraction], value: Fraction) -> bool:
    """Whether a sentence names known numbers alone, or the value again."""
    numbers = _numbers(text)
    is_plain = not (doubt(text, frozenset()) or names_several(text) or "=" in text)
    return is_plain and numbers <= known and (numbers <= {value} or num_words(text) >= _MIN_WORDS)


@functools.lru_cache(maxsize=1024)
def _given(question: str) -> frozenset[Fraction]:
    return frozenset(_numbers(plain(question)))


def _numbers(text: str) -> set[Fraction]:
    found = (read_number(match[0].strip()) for match in NUMBERS.finditer(text))
    return {number.value for number in found if number is not None}


def _without(text: str, given: frozenset[Fraction]) -> str:
    """The text with the question's numbers left out, if one other is in it and they stand among words; else nothing.

    Behind the other one they must follow "from" or the like.
    """
    found = list(NUMBERS.finditer(text))
    others = [match for match in found if not _numbers(match[0]) <= given]
    if len(found) < 2 or len(others) != 1:
        return ""
    has_verb = not text.startswith(last_statement(text[: others[0].start()]) or " ")
    for match in reversed(found):
        before, after = text[: match.start()], text[match.end() :]
        if match is others[0]:
            continue
        is_behind = match.start() > others[0].start()
        leads = _GIVEN_BEHIND if is_behind else _AFTER_A_WORD
        if not ((is_behind or has_verb) and leads.search(before) and _BEFORE_A_WORD.match(after)):
            return ""
        text = f"{before}some{after}"
    return text


def _only_number(text: str, own: frozenset[str]) -> Number | None:
    """The one number among plain words; the last one of a sentence."""
    found = list(NUMBERS.finditer(text))
    if not found or (len(found) > 1 and not states_only_last(text[found[-2].end() : found[-1].start()], own)):
        return None
    start, end = found[-1].span()
    before, after = text[:start], text[end:]
    statement = last_statement(before)
    if before[-1:].isalpha() or num_words(before) > MAX_WORDS_BEFORE or num_words(after) > MAX_WORDS_AFTER:
        return None
    if found[-1][0].startswith(("- ", "+ ")) and statement.strip(" ("):  # "Answer - 18" is no negative number
        return None
    if not (is_led(before, own) and may_follow(after, own) and only_words(statement, after)):
        return None
    return read_number(found[-1][0].strip())


def _in_one_unit(match: re.Match[str], question: str) -> str:
    count, unit, rest, part = match.groups()
    ratio, smaller = _PARTS[unit]
    asked = re.search(rf"\b(?:how many|in) (?:{unit}|({part}))s\b", question, re.IGNORECASE)
    if part != smaller or asked is None:
        return match[0]
    total = int(count) * ratio + int(rest)
    return f"{total} {part}s" if asked[1] else f"{Fraction(total, ratio)} {unit}s"


def _scientific(match: re.Match[str]) -> str:
    return format(Decimal(match[1]).scaleb(int(match[2] or match[3])), "f")


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match[1] or "0", match[2], match[3]
    nines = 10 ** (len(fixed) + len(period)) - 10 ** len(fixed)
    return f"{int(whole) * nines + int(fixed + period) - int(fixed or '0')}/{nines}"


def _scaled(match: re.Match[str]) -> str:
    return format(Decimal(match[1].replace(",", "")).scaleb(_SCALES[match[2].lower()]), "f")


_REWRITES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"^(?:[-•*]|1[.)]) (?=[0-9.,]+ [A-Za-z])|^1[.)] (?=[0-9.,]+$)"), ""),
    (re.compile(r"^([^=()]+?) ?\( ?= ?([^=]+)\)$"), r"\2 = \1"),
    (re.compile(r"(?<=[0-9]) and (?:a|one)[ -](half|third|quarter)\b"), lambda match: f" {_HALVES[match[1]]}"),
    (_SCIENTIFIC, _scientific),
    (_REPEATING, _repeating),
    (_SCALED, _scaled),
    (_NEGATIVE, "-"),
]
"""Items of a list, `18 (= 9 * 2)`, "3 and a half", scientific notation, repeating decimals, scales and signs."""
