r"""Algebra on two written answers, by math-verify without its signals.

math-verify's own time limit is an alarm signal, which works only in a main thread; in others the verdict is "wrong".
Here it is off, so the verdict is the same in every thread; the worker processes (`podsrl.score.workers`) enforce a
limit instead. Expressions that could take long (`is_bomb`) never reach algebra.

Model output reaches sympy only through math-verify's LaTeX grammar, never through `eval` or `parse_expr`.
"""

from __future__ import annotations

import functools
import logging
import math
import re
from fractions import Fraction
from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse, verify

from podsrl.score.rewards.canonical import (
    MAX_CHARACTERS,
    NUMBERS,
    Number,
    canonical,
    empty_reference,
    plain,
    read_number,
)

_DECIMALS = 6
"""math-verify's own rounding, where one of two numbers is written with a point."""
_MAX_ALGEBRA = 300
"""Characters of the longest expression that algebra may get."""
_MAX_DEPTH, _MAX_TERMS, _MAX_DIGITS, _MAX_FUNCTIONS = 8, 40, 30, 8
_MAX_POWER, _MAX_EXPANDED, _MAX_FACTORIAL = 3000, 1000, 3000
_TEXT_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*\{")
_LATEX = (LatexExtractionConfig(boxed_match_priority=0),)
_ENDLESS = re.compile(r"\\(?:sum|prod|int|lim|oint|iint|log_?\{?\\log)(?![A-Za-z])|!\s*!|[^0-9\s]\s*!(?!=)")
_POWER = re.compile(
    r"(?P<base>.)\s*(?:\^|\*\*)\s*(?:(?P<digits>[0-9]+)|\{(?P<group>[^{}]*)(?P<end>[{}])?|(?P<other>\S))", re.DOTALL
)
_FUNCTION = re.compile(
    r"\\(?:sqrt|[a-z]*sin|[a-z]*cos|[a-z]*tan|cot|sec|csc|log|ln|exp|binom|[a-z]*mod|max|min|gcd|lcm)"
)

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns once per process that its time limit is off


def is_bomb(expression: str) -> bool:
    r"""Whether algebra might take long for an expression: towers of powers, large factorials, many terms, depth.

    Example:
        >>> is_bomb("9^{9^{9}}"), is_bomb("99999!"), is_bomb("2^{2005} + x^2"), is_bomb(r"\frac{1}{5!}")
        (True, True, False, False)
    """
    expression = expression[: _MAX_ALGEBRA + 1].replace("**", "^ ")
    if len(expression) > _MAX_ALGEBRA or _depth(expression) > _MAX_DEPTH or _ENDLESS.search(expression):
        return True
    counts = len(re.findall(r"[-+*/]|\\cdot|\\times", expression)), len(_FUNCTION.findall(expression))
    digits = max(map(len, re.findall(r"[0-9]+", expression)), default=0)
    if counts[0] > _MAX_TERMS or counts[1] > _MAX_FUNCTIONS or digits > _MAX_DIGITS:
        return True
    if "!" in expression or "binom" in expression:
        numbers = [int(digits) for digits in re.findall(r"[0-9]+", expression)]
        return "^" in expression or max(numbers, default=0) > _MAX_FACTORIAL
    return _is_tower(expression)


def _depth(expression: str) -> int:
    depth = deepest = 0
    for bracket in re.finditer(r"[({\[]|[)}\]]", expression):
        depth += 1 if bracket[0] in "({[" else -1
        deepest = max(deepest, depth)
    return deepest


def _is_tower(expression: str) -> bool:
    """Powers of powers, or powers with exponents that are large: of sums more than a few, of numbers thousands."""
    product, num_letters = 1, len(set(re.findall(r"(?<![\\A-Za-z])[A-Za-z]", expression)))
    for power in _POWER.finditer(expression):
        exponent = power["digits"] or power["group"] or power["other"] or ""
        if power["end"] == "{" or "^" in exponent or "*" in exponent:
            return True
        size = max((int(digits) for digits in re.findall(r"[0-9]+", exponent)), default=1)
        product *= max(size, 1) if power["base"] in ")}]" or power["digits"] is None else 1
        is_group = power["base"] in ")]"
        if (
            size > _MAX_POWER
            or product > _MAX_POWER
            or (is_group and math.comb(size + num_letters, size) > _MAX_EXPANDED)
        ):
            return True
    return re.search(r"\^\s*[0-9A-Za-z]\s*\^", expression) is not None


def is_equal(candidate: str, answer: str) -> bool:
    """Whether algebra calls a piece of text equal to the reference answer, in any of its readings.

    `1/2` is `0.5`, `50%` is `0.5` and `50`, units do not count, `2+2` is `4`. A piece of over 1,000 characters must be
    the reference letter by letter. ValueError: the reference is empty.

    Example:
        >>> is_equal("18 dollars", "18"), is_equal("x^2 + 1", "1 + x^2"), is_equal("3 or 4", "4"), is_equal("", "4")
        (True, True, False, False)
    """
    reference, text = canonical_reference(answer), canonical(candidate)
    if text == reference or not text:
        return bool(text)
    if max(len(candidate), len(answer)) > MAX_CHARACTERS:
        return False
    ours, theirs = _quantity(plain(candidate)), _quantity(plain(answer))
    if re.match(r"[^\W\d_]{2,}", plain(answer)):  # "June 20" is no 20
        theirs = None
    if ours is not None and theirs is not None:
        return _are_equal(ours, theirs)
    return not is_words(answer) and equals_by_algebra(candidate, answer)


def equals_by_algebra(candidate: str, answer: str, *, allows_relations: bool = False) -> bool:
    r"""Whether math-verify calls two expressions equal; a bomb, or a row of numbers, equals nothing.

    With `allows_relations`, `x < 1` may be an interval.

    Example:
        >>> equals_by_algebra("(x+1)^2", "x^2+2x+1"), equals_by_algebra("6 7", "42"), equals_by_algebra("9^{9^9}", "1")
        (True, False, False)
    """
    if is_bomb(candidate) or re.search(r"[0-9]\s+[-+]?[0-9]", plain(candidate)):
        return False
    return bool(
        verify(_parsed(answer), _parse(candidate), timeout_seconds=None, allow_set_relation_comp=allows_relations)
    )


@functools.lru_cache(maxsize=8192)
def number_of(answer: str) -> tuple[Fraction, bool] | None:
    r"""Give the value of a reference such as `2\sqrt{3}` or `10^{5}`, and whether it is exact; None where it has none.

    Example:
        >>> number_of("10^{5}"), number_of("x"), number_of(r"\sqrt{2}")[1]
        ((Fraction(100000, 1), True), None, False)
    """
    found = [] if is_bomb(answer) else _parsed(answer)
    value = found[0] if found else None
    if not isinstance(value, sympy.Expr) or not value.is_number or value.is_real is not True:
        return None
    value = value.doit()
    if value.is_Rational:
        return Fraction(int(value.p), int(value.q)), True
    digits = value.evalf(40)
    return (Fraction(str(digits)), False) if digits.is_Float else None


@functools.lru_cache(maxsize=8192)
def canonical_reference(answer: str) -> str:
    """Write a reference answer in its one way. ValueError: it is empty."""
    text = canonical(answer)
    if not text:
        raise empty_reference(answer)
    return text


def is_words(answer: str) -> bool:
    """Whether a reference is compared as a string, because algebra takes letters for factors ("seat" = "east")."""
    text = canonical(answer)
    return len(answer) > MAX_CHARACTERS or (text.isalpha() and (len(text) > 3 or bool(_TEXT_WRAPPER.search(answer))))


def _parse(piece: str) -> list[Any]:
    """One box around it, so that math-verify takes the piece as a whole and does not choose within it."""
    found: list[Any] = parse(f"\\boxed{{{piece}}}", extraction_config=_LATEX, parsing_timeout=None)
    return found


_parsed = functools.lru_cache(maxsize=8192)(_parse)


def _quantity(text: str) -> Number | None:
    """One written number, perhaps among words."""
    numbers = NUMBERS.findall(text)
    if len(numbers) != 1 or not re.fullmatch(
        r"(?:[^\W\d_]{2,}+(?:\^[23])?|[aAI]\b|[\s.,:'?()*-])*", text.replace(numbers[0], " ", 1)
    ):
        return read_number(text)
    return read_number(numbers[0])


def _are_equal(one: Number, other: Number) -> bool:
    """50 % is both 50 and 0.5; a number written with a point may be rounded."""
    ours, theirs = _readings(one), _readings(other)
    if one.is_percent and other.is_percent:
        ours, theirs = ours[:1], theirs[:1]
    if one.num_decimals or other.num_decimals:
        ours, theirs = [round(value, _DECIMALS) for value in ours], [round(value, _DECIMALS) for value in theirs]
    return bool(set(ours) & set(theirs))


def _readings(number: Number) -> list[Fraction]:
    return [number.value, number.value / 100] if number.is_percent else [number.value]
