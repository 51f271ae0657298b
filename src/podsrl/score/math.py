r"""Says whether two mathematical answers are the same, by math-verify without its signals.

math-verify's own time limit is an alarm signal, which works in a main thread only and elsewhere silently says "wrong".
Here it is off, so the verdict is the same in every thread; the limit is kept by the worker processes
(`podsrl.score.workers`). Written numbers are compared exactly and quickly, without algebra.

Model output reaches sympy only through math-verify's LaTeX grammar, never through `eval` or `parse_expr`.
"""

from __future__ import annotations

import functools
import logging
import re
from dataclasses import dataclass
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify

from podsrl.score.canonical import MAX_CHARACTERS, Number, canonical, plain, read_number, read_quantity
from podsrl.score.extract import answer_content, boxed_content, last_number

_MAX_FULL_TEXT = 100
"""Characters of a line that may as a whole be the answer."""
_DECIMALS = 6
"""math-verify's own rounding, where one of two numbers is written with a point."""
_TEXT_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*\{")
_LATEX = (LatexExtractionConfig(boxed_match_priority=0),)

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns once a process that its time limit is off


def is_correct(completion: str, answer: str) -> bool:
    r"""Say whether a completion's final answer is the reference answer.

    What counts is one piece: the last `\boxed{}`, else the last `<answer>`, else the last number (or the whole text, if
    it is one short line). A piece that lists several answers is right only if the reference lists the same.

    Args:
        completion: text of any length.
        answer: the reference, bare: `18`, `\frac{1}{2}`, `[1, 2)`, `\text{east}`.

    Returns:
        Equal as math-verify sees it: `\frac12` is `0.5`, `1,234` is `1234`, `50\%` is `0.5` and `50`, units do
        not count, `2+2` is `4`.

    Raises:
        ValueError: the reference is empty.

    There is no time limit: a piece such as `9^{9^{9^9}}` may take for ever. In a run the worker's limit ends it.

    Example:
        >>> is_correct(r"Half of it, so $\boxed{\dfrac12}$.", "0.5"), is_correct(r"\boxed{1, 2, 3}", "2")
        (True, False)
    """
    for find in (boxed_content, answer_content):
        if (piece := find(completion)) is not None:
            return is_same(piece, answer)
    whole = completion.strip()
    if len(whole) <= _MAX_FULL_TEXT and "\n" not in whole and is_same(whole, answer):
        return True
    return is_same(last_number(completion) or "", answer)


def is_same(candidate: str, answer: str) -> bool:
    """Say whether one piece of text is the reference answer.

    Args:
        candidate: the piece, e.g. what stood in a box. Over 1,000 characters it must be the reference letter by letter.
        answer: the reference.

    Raises:
        ValueError: the reference is empty.

    Example:
        >>> is_same("18 dollars", "18"), is_same("x^2 + 1", "1 + x^2"), is_same("3 or 4", "4"), is_same("", "4")
        (True, True, False, False)
    """
    reference, text = _reference(answer), canonical(candidate)
    if text == reference.text or not text:
        return bool(text)
    if max(len(candidate), len(answer)) > MAX_CHARACTERS:
        return False
    number = read_number(candidate) or read_quantity(candidate, with_words_before=True)
    if number is not None and reference.number is not None:
        return _are_equal(number, reference.number)
    if reference.is_text or _is_row_of_numbers(candidate):
        return False
    return bool(verify(_parsed(answer), _parse(candidate), timeout_seconds=None))


@dataclass(frozen=True, slots=True)
class _Reference:
    text: str
    number: Number | None
    is_text: bool
    """Words: compared as a string, because algebra takes letters for factors ("seat" = "east")."""


@functools.lru_cache(maxsize=8192)
def _reference(answer: str) -> _Reference:
    text = canonical(answer)
    if not text:
        raise ValueError(
            f"the reference answer {answer!r} cannot be parsed: it is empty; wanted a number, LaTeX or text"
        )
    if len(answer) > MAX_CHARACTERS:
        return _Reference(text, None, True)
    number = read_number(answer) or read_quantity(answer, with_words_before=False)
    is_text = text.isalpha() and (len(text) > 3 or _TEXT_WRAPPER.search(answer) is not None)
    return _Reference(text, number, is_text)


@functools.lru_cache(maxsize=8192)
def _parsed(answer: str) -> list[Any]:
    return _parse(answer)


def _parse(piece: str) -> list[Any]:
    """One box around it, so that math-verify takes the piece as a whole and does not choose within it."""
    found: list[Any] = parse(f"\\boxed{{{piece}}}", extraction_config=_LATEX, parsing_timeout=None)
    return found


def _are_equal(one: Number, other: Number) -> bool:
    """50 % is both 50 and 0.5; a number written with a point may be rounded."""
    ours, theirs = _readings(one), _readings(other)
    if one.is_percent and other.is_percent:
        ours, theirs = ours[:1], theirs[:1]
    if one.is_decimal or other.is_decimal:
        ours, theirs = [round(value, _DECIMALS) for value in ours], [round(value, _DECIMALS) for value in theirs]
    return bool(set(ours) & set(theirs))


def _readings(number: Number) -> list[Any]:
    return [number.value, number.value / 100] if number.is_percent else [number.value]


def _is_row_of_numbers(candidate: str) -> bool:
    """`3 4 5` would be a product to the grammar: a list of answers in disguise."""
    return re.fullmatch(r"[-+\d.]+(?:\s+[-+\d.]+)+", plain(candidate)) is not None
