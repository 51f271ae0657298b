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
from itertools import accumulate
from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse, verify

from podsrl.score.rewards.canonical import MAX_CHARACTERS, NUMBERS, canonical, empty_reference, plain, read_number

_MAX_ALGEBRA = 300
"""Characters of the longest expression that algebra may get."""
_MAX_DEPTH, _MAX_TERMS, _MAX_DIGITS, _MAX_FUNCTIONS = 8, 40, 30, 8
_MAX_POWER, _MAX_EXPANDED, _MAX_FACTORIAL, _MAX_DIVISIONS = 3000, 1000, 3000, 12
_TEXT_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*\{")
_LATEX = (LatexExtractionConfig(boxed_match_priority=0),)
_ENDLESS = re.compile(r"\\(?:sum|prod|int|lim|oint|iint|log_?\{?\\log)(?![A-Za-z])|!\s*!|[^0-9\s]\s*!(?!=)")
_TERM = re.compile(r"[-+*/]|\\cdot|\\times")
_POWER = re.compile(
    r"(?P<base>.)\s*(?:\^|\*\*)\s*(?:(?P<digits>[0-9]+)|\{(?P<group>[^{}]*)(?P<end>[{}])?|(?P<other>\S))", re.DOTALL
)
_FUNCTION = re.compile(r"\\(?:sqrt|[a-z]*(?:sin|cos|tan|mod)|cot|sec|csc|log|ln|exp|binom|max|min|gcd|lcm)")
_WORDS = re.compile(r"(?:[^\W\d_]{2,}+(?:\^[23])?|[aAI]\b|[\s.,:'?()*-])*")

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns once per process that its time limit is off


def is_bomb(expression: str) -> bool:
    r"""Whether algebra might take long for an expression: towers of powers, large factorials, many terms, depth."""
    expression = expression[: _MAX_ALGEBRA + 1].replace("**", "^ ")
    depths = accumulate((sign in "({[") - (sign in ")}]") for sign in expression)
    if len(expression) > _MAX_ALGEBRA or max(depths, default=0) > _MAX_DEPTH or _ENDLESS.search(expression):
        return True
    num_terms, num_functions = len(_TERM.findall(expression)), len(_FUNCTION.findall(expression))
    numbers = re.findall(r"[0-9]+", expression)
    if num_terms > _MAX_TERMS or num_functions > _MAX_FUNCTIONS or max(map(len, numbers), default=0) > _MAX_DIGITS:
        return True
    if expression.count("/") + expression.count("\\div") > _MAX_DIVISIONS:  # each doubles the time
        return True
    if "!" in expression or "binom" in expression:
        return "^" in expression or max(map(int, numbers), default=0) > _MAX_FACTORIAL
    return _is_tower(expression)


def _is_tower(expression: str) -> bool:
    """Powers of powers, or powers with exponents that are large: of sums more than a few, of numbers thousands."""
    product, num_letters = 1, len(set(re.findall(r"(?<![\\A-Za-z])[A-Za-z]", expression)))
    for power in _POWER.finditer(expression):
        exponent = power["digits"] or power["group"] or power["other"] or ""
        size = max((int(digits) for digits in re.findall(r"[0-9]+", exponent)), default=1)
        product *= max(size, 1) if power["base"] in ")}]" or power["digits"] is None else 1
        is_large_sum = power["base"] in ")]" and math.comb(size + num_letters, size) > _MAX_EXPANDED
        if power["end"] == "{" or "^" in exponent or "*" in exponent or max(size, product) > _MAX_POWER or is_large_sum:
            return True
    return re.search(r"\^\s*[0-9A-Za-z]\s*\^", expression) is not None


def is_equal(candidate: str, answer: str) -> bool:
    """Whether algebra calls a piece of text equal to the reference answer, in any of its readings.

    `1/2` is `0.5`, `50%` is `0.5` and `50`, units do not count, `2+2` is `4`. A piece of over 1,000 characters must be
    the reference letter by letter. ValueError: the reference is empty.
    """
    reference, text = canonical(answer), canonical(candidate)
    if not reference:
        raise empty_reference(answer)
    if text == reference or not text or max(len(candidate), len(answer)) > MAX_CHARACTERS:
        return text == reference
    text, answer_text = plain(candidate), plain(answer)
    numbers = NUMBERS.findall(text)
    if len(numbers) == 1 and _WORDS.fullmatch(text.replace(numbers[0], " ", 1)):
        candidate = numbers[0].strip()
    ours, theirs = read_number(candidate), read_number(answer_text)
    if ours is not None and theirs is not None and not re.search(r"[.%]", text + answer_text):
        return ours.value == theirs.value  # what algebra says too, sooner
    is_words = reference.isalpha() and (len(reference) > 3 or _TEXT_WRAPPER.search(answer) is not None)
    return not is_words and equals_by_algebra(candidate, answer)


def equals_by_algebra(candidate: str, answer: str, *, allows_relations: bool = False) -> bool:
    r"""Whether math-verify calls two expressions equal; a bomb, or a row of numbers, equals nothing.

    With `allows_relations`, `x < 1` may be an interval.
    """
    if is_bomb(candidate) or re.search(r"[0-9]\s+[-+]?[0-9]", plain(candidate)):
        return False
    ours, theirs = _parse(candidate), _parsed(answer)
    return bool(verify(theirs, ours, timeout_seconds=None, allow_set_relation_comp=allows_relations))


@functools.lru_cache(maxsize=8192)
def number_of(answer: str) -> tuple[Fraction, bool] | None:
    r"""Give the value of a reference such as `2\sqrt{3}` or `10^{5}`, and whether it is exact; None: it has none."""
    found = [] if is_bomb(answer) else _parsed(answer)
    value = found[0] if found else None
    if not isinstance(value, sympy.Expr) or not value.is_number or value.is_real is not True:
        return None
    value = value.doit()
    if value.is_Rational:
        return Fraction(int(value.p), int(value.q)), True
    digits = value.evalf(40)
    return (Fraction(str(digits)), False) if digits.is_Float else None


def _parse(piece: str) -> list[Any]:
    """One box around it, so that math-verify takes the piece as a whole and does not choose within it."""
    found: list[Any] = parse(f"\\boxed{{{piece}}}", extraction_config=_LATEX, parsing_timeout=None)
    return found


_parsed = functools.lru_cache(maxsize=8192)(_parse)
